/* TC egress of an uplink: what leaves by the host stack, with its NAT, must come back to it. */
#include "bpf/finish.h"
#include "bpf/parse.h"
#include "bpf/route.h"
#include "bpf/source.h"
#include "bpf/uplink.h"

static __always_inline int recognise_own(struct packet *p)
{
	if (!(p->skb->mark & fast_mark))
		return 0;
	p->skb->mark &= ~fast_mark;
	return REASON_UPLINK_SENT;
}

/*
 * The kernel asks for a neighbour in the name of any address it has, and neighbours that check the way back do not
 * answer strangers. A probe, which has no sender, is answered by everybody (RFC 5227, 2.1.1).
 */
static __always_inline int ask_without_name(struct packet *p)
{
	const __u32 offset = sizeof(struct ethhdr) + __builtin_offsetof(struct arp_packet, sender);
	struct source_route_key nameless = source_route_place(p->skb->ifindex, 1, SOURCE_ROUTE_NAMELESS);
	struct arp_packet arp;
	__be32 nobody = 0;

	if (p->skb->protocol != bpf_htons(ETH_P_ARP) || !bpf_map_lookup_elem(&source_route_v1, &nameless))
		return 0;
	if (bpf_skb_load_bytes(p->skb, sizeof(struct ethhdr), &arp, sizeof(arp)) || arp.operation != bpf_htons(1))
		return 0;
	/* Who announces an address says so. */
	if (arp.sender != arp.target)
		bpf_skb_store_bytes(p->skb, offset, &nobody, sizeof(nobody), 0);
	return 0;
}

static __always_inline int remember_sender(struct packet *p)
{
	struct address *sender;

	if (!p->has_flow)
		return REASON_UPLINK_SENT_HOST;
	sender = find_endpoint(p, &p->flow.local);
	if (sender) {
		p->flow.ifindex = sender->ifindex;
		/* Of the answers from outside the cluster, those not of TCP look like questions. */
		remember_host(p,
			      (sender->flags & (INTERFACE_WAY | INTERFACE_SIBLINGS)) || p->ip.protocol != IPPROTO_TCP);
	}
	return REASON_UPLINK_SENT_HOST;
}

SEC("tc")
int pl_to_uplink(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb, .verdict = VERDICT_NEXT, .is_egress = true};
	int reason = recognise_own(&p) ?: ask_without_name(&p) ?: parse(&p, FROM_POD) ?: remember_sender(&p);

	/* The host stack's own packets are not ours to judge. */
	return finish(&p, reason == REASON_DROP_MALFORMED ? REASON_UPLINK_SENT_HOST : reason);
}

char _license[] SEC("license") = "Dual MIT/GPL";
