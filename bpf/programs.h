/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * All programs that are attached, in one object, of which the loader opens a copy for each thread: to read the kernel's
 * type information, once an object, takes it as long as to have a program verified.
 */
#pragma once

/* Contexts and headers are the same in every kernel: the loader need not look up their layout, which takes 15 ms. */
#define BPF_NO_PRESERVE_ACCESS_INDEX

#include "bpf/from_pod.h"
#include "bpf/from_uplink.h"
#include "bpf/pace_tcp.h"
#include "bpf/to_pod.h"
#include "bpf/to_uplink.h"

char _license[] SEC("license") = "Dual MIT/GPL";
