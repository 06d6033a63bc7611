/* TC egress of an uplink: what leaves by the host stack, with its NAT, must come back to it. */
#include "bpf/finish.h"
#include "bpf/parse.h"
#include "bpf/route.h"
#include "bpf/uplink.h"

static __always_inline int recognise_own(struct packet *p)
{
	if (!(p->skb->mark & fast_mark))
		return 0;
	p->skb->mark &= ~fast_mark;
	return REASON_UPLINK_SENT;
}

static __always_inline int remember_sender(struct packet *p)
{
	struct address *sender;

	if (!p->has_flow)
		return REASON_UPLINK_SENT_HOST;
	sender = find_endpoint(p, &p->flow.local);
	if (sender) {
		p->flow.ifindex = sender->ifindex;
		remember_host(p, true);
	}
	return REASON_UPLINK_SENT_HOST;
}

SEC("tc")
int pl_to_uplink(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb, .verdict = VERDICT_NEXT};
	int reason = recognise_own(&p) ?: parse(&p, FROM_POD) ?: remember_sender(&p);

	/* The host stack's own packets are not ours to judge. */
	return finish(&p, reason == REASON_DROP_MALFORMED ? REASON_UPLINK_SENT_HOST : reason);
}

char _license[] SEC("license") = "Dual MIT/GPL";
