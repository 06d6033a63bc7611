/* TC egress of a host end: what the host stack delivers to a pod, and must therefore get the answers of. */
#include "bpf/endpoint.h"
#include "bpf/finish.h"
#include "bpf/parse.h"
#include "bpf/route.h"

/* Only flows between two endpoints have a choice of paths: the others need no memory. */
static __always_inline int remember_host(struct packet *p)
{
	struct flow_path *known;

	if (!p->has_flow || p->is_icmp_error || !find_address(p, &p->flow.peer))
		return REASON_RECEIVED_HOST;
	known = bpf_map_lookup_elem(&paths_v1, &p->flow);
	if (!known || known->via != PATH_HOST)
		remember(&p->flow, PATH_HOST);
	return REASON_RECEIVED_HOST;
}

SEC("tc")
int pl_to_pod(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb, .verdict = VERDICT_NEXT};
	int reason = find_interface(&p) ?: parse(&p, TO_POD) ?: remember_host(&p);

	return finish(&p, reason);
}

char _license[] SEC("license") = "Dual MIT/GPL";
