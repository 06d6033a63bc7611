/* TC ingress of a host end: what a pod sends. */
#include "bpf/answer.h"
#include "bpf/endpoint.h"
#include "bpf/finish.h"
#include "bpf/forward.h"
#include "bpf/limit.h"
#include "bpf/parse.h"
#include "bpf/route.h"
#include "bpf/source.h"
#include "bpf/uplink.h"
#include "bpf/way.h"

static __always_inline int forward(struct packet *p)
{
	if (p->receiver)
		return deliver(p, REASON_SENT_DIRECT);
	return p->way ? send_by_way(p) : send_to_uplink(p);
}

static __always_inline int choose_path(struct packet *p)
{
	return p->way && !p->receiver ? find_way_path(p) : find_path(p);
}

SEC("tc")
int pl_from_pod(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb, .verdict = VERDICT_NEXT};
	int reason = find_interface(&p) ?: parse(&p, FROM_POD) ?: check_source(&p) ?: find_asked_sibling(&p) ?: answer(&p) ?: limit_sender(&p)
					?: find_receiver(&p) ?: choose_path(&p) ?: forward(&p);

	return finish(&p, reason);
}

char _license[] SEC("license") = "Dual MIT/GPL";
