/* TC egress of a host end: what the host stack delivers to a pod, and must therefore get the answers of. */
#include "bpf/endpoint.h"
#include "bpf/finish.h"
#include "bpf/parse.h"
#include "bpf/route.h"

static __always_inline int receive(struct packet *p)
{
	remember_host(p, p->interface->flags & (INTERFACE_WAY | INTERFACE_SIBLINGS));
	return REASON_RECEIVED_HOST;
}

SEC("tc")
int pl_to_pod(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb, .verdict = VERDICT_NEXT, .is_egress = true};
	int reason = find_interface(&p) ?: parse(&p, TO_POD) ?: receive(&p);

	return finish(&p, reason);
}

char _license[] SEC("license") = "Dual MIT/GPL";
