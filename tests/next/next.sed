# SPDX-License-Identifier: MIT
# Makes of maps/, loader/ and bpf/ those of a version to come, in which several maps have another layout.
s/\b\(interfaces\|endpoints\|paths\|kept_paths\|cluster_cidr\)_v1\b/\1_v2/g
s/\bcounters_v3\b/counters_v4/g
# interfaces: a field grows
s/__u32 flags;  *\/\* enum interface_flags \*\/$/__u64 flags;/
s/sizeof(struct interface) == 64, "one cache line"/sizeof(struct interface) == 72, "more than a cache line"/
# paths: new fields
s/__u32 uplink;   \/\* ifindex of the uplink, 0 if there is none \*\//__u32 uplink; __u64 last_ns;/
s/sizeof(struct flow_path) == 16/sizeof(struct flow_path) == 24/
s/sizeof(struct kept_path) == 64/sizeof(struct kept_path) == 72/
# counters and endpoints: arrays grow
s/COUNTER_REASONS 60/COUNTER_REASONS 96/
s/<= 16384 - 64, "four pages/<= 32768 - 64, "eight pages/
s/ENDPOINT_POD_UID_SIZE 64/ENDPOINT_POD_UID_SIZE 128/
