/* pl_from_pod as it would be without the source routing step, to be measured beside the shipped one. */
#include "vmlinux.h"

#include "maps/abi/interface.h"

/* No bit: what asks for one goes away when this is compiled. */
#define INTERFACE_SIBLINGS 0
#define INTERFACE_WAY 0

#include "bpf/from_pod.bpf.c"
