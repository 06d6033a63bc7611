/* SPDX-License-Identifier: MIT */
/* The window of a TCP endpoint, by the numbers that it has announced in its packets. */
#pragma once

#include "flow.h"

#if !defined(__cplusplus) && !defined(__VMLINUX_H__)
#include <stdbool.h>
#endif

#define SENT_AT_ONCE 16 /* 64 KiB each: what one packet may hold */

/* As conntrack does while it is strict, a window below as well: numbers of what is sent again are accepted. */
static inline bool is_in_window(const struct tcp_window *window, __u8 scale, __u32 number)
{
	__u32 size = (window->size + 1U) << (scale & 15);

	return window->sent && number - window->ack + size < 2 * size;
}

/*
 * Whether the endpoint has sent what is acknowledged to it: by the upper half of its last number, which may be that of
 * a segment that it sent again, or one of many that were on their way. `scale`: of the window that is announced to it.
 */
static inline bool acknowledges_sent(const struct tcp_window *window, __u8 scale, __u32 ack)
{
	__u16 reach = (1U << (scale & 15)) + SENT_AT_ONCE;
	__u16 ahead = (ack >> 16) - window->sent + reach;

	return ahead <= 2 * reach;
}
