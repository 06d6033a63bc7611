/* TC ingress of an uplink: what comes from other nodes. */
#include "bpf/answer_uplink.h"
#include "bpf/finish.h"
#include "bpf/forward.h"
#include "bpf/parse.h"
#include "bpf/route.h"
#include "bpf/uplink.h"

static __always_inline int find_local_receiver(struct packet *p)
{
	if (p->protocol != ETH_P_IP && p->protocol != ETH_P_IPV6)
		return REASON_HOST_NOT_IP;
	p->receiver = find_endpoint(p, &p->ip.destination);
	if (!p->receiver)
		return REASON_HOST_NOT_LOCAL;
	if (p->detour && !(p->receiver->flags & INTERFACE_WAY && goes_as_it_is(p)))
		return p->detour;
	/* Nobody out there has an address of ours: the host stack knows what to do with one who says so. */
	if (find_address(p, &p->ip.source))
		return REASON_HOST_SOURCE_LOCAL;
	p->flow.ifindex = p->receiver->ifindex;
	return check_receiver(p, INTERFACE_FAST_UPLINK | INTERFACE_WAY);
}

/* The host stack has a part only in what it sent itself. */
static __always_inline int find_own_path_in(struct packet *p)
{
	struct flow_path *known;

	if (!p->has_flow)
		return 0;
	known = bpf_map_lookup_elem(&paths_v1, &p->flow);
	if (known && known->via == PATH_HOST)
		return REASON_HOST_PATH;
	if (!known && !p->is_icmp_error)
		remember(&p->flow, PATH_UPLINK, p->skb->ifindex);
	return 0;
}

/* Answers to the cluster follow the kernel's routes, those to anybody else the uplink the question came by. */
static __always_inline int find_path_in(struct packet *p)
{
	struct flow_path *known;

	if (p->receiver->flags & INTERFACE_WAY)
		return find_own_path_in(p);
	known = bpf_map_lookup_elem(&paths_v1, &p->flow);
	if (known && known->via != PATH_DIRECT)
		return known->via == PATH_UPLINK ? 0 : REASON_HOST_PATH;
	if (!p->starts_flow)
		return REASON_HOST_UNKNOWN_PATH;
	if (!remember(&p->flow, PATH_UPLINK, in_cluster(p, &p->ip.source) ? 0 : p->skb->ifindex))
		return REASON_HOST_UNKNOWN_PATH;
	return 0;
}

SEC("tc")
int pl_from_uplink(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb, .verdict = VERDICT_NEXT};
	int reason = parse(&p, TO_POD) ?: answer_neighbour(&p) ?: find_local_receiver(&p) ?: find_path_in(&p) ?: deliver(&p, REASON_UPLINK_DELIVERED);

	return finish(&p, reason);
}

char _license[] SEC("license") = "Dual MIT/GPL";
