/* pl_from_pod as it would be if nobody could watch, to be measured beside the shipped one. */
#define NOBODY_WATCHES 1

#include "bpf/from_pod.bpf.c"
