/* Wraps DPDK's inline functions and structs; see lib.rs. */
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_flow.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_memory.h>
#include <rte_mempool.h>
#include <rte_prefetch.h>
#include <rte_ring.h>

#include "shim.h"

int erpc_errno(void) { return rte_errno; }

int erpc_device_find(const char *name, struct erpc_device *device)
{
    struct rte_eth_dev_info info;
    struct rte_ether_addr mac;
    uint16_t port;
    int error = rte_eth_dev_get_port_by_name(name, &port);

    if (error == 0)
        error = rte_eth_dev_info_get(port, &info);
    if (error == 0)
        error = rte_eth_macaddr_get(port, &mac);
    if (error != 0)
        return error;
    memset(device, 0, sizeof *device);
    device->port = port;
    device->max_mtu = info.max_mtu;
    device->max_rx_queues = info.max_rx_queues;
    device->max_tx_queues = info.max_tx_queues;
    device->rx_checksums = (info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_UDP_CKSUM) != 0
        && (info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_IPV4_CKSUM) != 0;
    device->tx_checksums = (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_UDP_CKSUM) != 0
        && (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_IPV4_CKSUM) != 0;
    device->tx_segments = (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS) != 0;
    memcpy(device->mac, mac.addr_bytes, sizeof device->mac);
    device->socket = rte_eth_dev_socket_id(port);
    device->interface = info.if_index;
    return 0;
}

int erpc_device_start(uint16_t port, struct erpc_setup *setup, struct rte_mempool *pool, const char **step)
{
    struct rte_eth_conf conf;
    struct rte_eth_dev_info info;
    struct rte_eth_rxconf rx;
    struct rte_eth_txconf tx;
    int error;

    *step = "query the device";
    error = rte_eth_dev_info_get(port, &info);
    if (error != 0)
        return error;
    memset(&conf, 0, sizeof conf);
    if (setup->mtu != 0)
        conf.rxmode.mtu = setup->mtu;
    if (setup->rx_checksums)
        conf.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_UDP_CKSUM | RTE_ETH_RX_OFFLOAD_IPV4_CKSUM;
    if (setup->tx_checksums)
        conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_UDP_CKSUM | RTE_ETH_TX_OFFLOAD_IPV4_CKSUM;
    if (setup->tx_segments)
        conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
    conf.rx_adv_conf.rss_conf.rss_hf
        = info.flow_type_rss_offloads & (RTE_ETH_RSS_NONFRAG_IPV4_UDP | RTE_ETH_RSS_NONFRAG_IPV6_UDP);
    setup->rss = setup->rx_queues > 1 && conf.rx_adv_conf.rss_conf.rss_hf != 0;
    if (setup->rss)
        conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
    else
        conf.rx_adv_conf.rss_conf.rss_hf = 0;
    *step = "configure the device";
    error = rte_eth_dev_configure(port, setup->rx_queues, setup->tx_queues, &conf);
    if (error != 0)
        return error;
    error = rte_eth_dev_adjust_nb_rx_tx_desc(port, &setup->rx_descriptors, &setup->tx_descriptors);
    if (error != 0)
        return error;
    rx = info.default_rxconf;
    rx.offloads = conf.rxmode.offloads & info.rx_queue_offload_capa;
    tx = info.default_txconf;
    tx.offloads = conf.txmode.offloads & info.tx_queue_offload_capa;
    *step = "set up a receive queue";
    for (uint16_t queue = 0; queue < setup->rx_queues; queue++) {
        error = rte_eth_rx_queue_setup(port, queue, setup->rx_descriptors, rte_eth_dev_socket_id(port), &rx, pool);
        if (error != 0)
            return error;
    }
    *step = "set up a transmit queue";
    for (uint16_t queue = 0; queue < setup->tx_queues; queue++) {
        error = rte_eth_tx_queue_setup(port, queue, setup->tx_descriptors, rte_eth_dev_socket_id(port), &tx);
        if (error != 0)
            return error;
    }
    *step = "start the device";
    error = rte_eth_dev_start(port);
    if (error != 0)
        return error;
    /* Neighbour solicitations of IPv6 are multicast. Not every device can filter them, and a virtual
     * one receives everything anyway, so refusals do not matter. */
    (void)rte_eth_allmulticast_enable(port);
    return 0;
}

int erpc_steer(uint16_t port, uint16_t udp_port, uint16_t queues, uint8_t is_v6, uint8_t has_vlan)
{
    const struct rte_flow_attr attributes = { .ingress = 1 };
    const struct rte_flow_item_udp mask = { .hdr.dst_port = 0xffff };
    struct rte_flow_error error;

    for (uint16_t i = 0; i < queues; i++) {
        const struct rte_flow_item_udp udp = { .hdr.dst_port = rte_cpu_to_be_16(udp_port + i) };
        const struct rte_flow_action_queue queue = { .index = i };
        const struct rte_flow_action actions[] = {
            { .type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &queue },
            { .type = RTE_FLOW_ACTION_TYPE_END },
        };
        struct rte_flow_item items[5] = { { .type = RTE_FLOW_ITEM_TYPE_ETH } };
        int count = 1, result;

        if (has_vlan)
            items[count++].type = RTE_FLOW_ITEM_TYPE_VLAN;
        items[count++].type = is_v6 ? RTE_FLOW_ITEM_TYPE_IPV6 : RTE_FLOW_ITEM_TYPE_IPV4;
        items[count].type = RTE_FLOW_ITEM_TYPE_UDP;
        items[count].spec = &udp;
        items[count++].mask = &mask;
        items[count].type = RTE_FLOW_ITEM_TYPE_END;
        result = rte_flow_validate(port, &attributes, items, actions, &error);
        if (result == 0 && rte_flow_create(port, &attributes, items, actions, &error) == NULL)
            result = -rte_errno;
        if (result != 0) {
            if (i > 0)
                (void)rte_flow_flush(port, &error);
            return result;
        }
    }
    return 0;
}

void erpc_device_stop(uint16_t port)
{
    struct rte_flow_error error;

    /* Drivers without rules refuse, which does not matter. */
    (void)rte_flow_flush(port, &error);
    (void)rte_eth_dev_stop(port);
}

int erpc_device_restart(uint16_t port, uint8_t runs)
{
    if (runs)
        (void)rte_eth_dev_stop(port);
    return rte_eth_dev_start(port);
}

int erpc_link(uint16_t port, uint32_t *mbps)
{
    struct rte_eth_link link;

    memset(&link, 0, sizeof link);
    if (rte_eth_link_get_nowait(port, &link) != 0)
        return 0;
    *mbps = link.link_speed == RTE_ETH_SPEED_NUM_UNKNOWN ? 0 : link.link_speed;
    return link.link_status == RTE_ETH_LINK_UP;
}

int erpc_interface(uint32_t interface, uint32_t *mtu)
{
    struct ethtool_value carrier = { .cmd = ETHTOOL_GLINK };
    struct ifreq request;
    int state, fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    *mtu = 0;
    if (fd < 0)
        return -errno;
    memset(&request, 0, sizeof request);
    request.ifr_ifindex = (int)interface;
    if (ioctl(fd, SIOCGIFNAME, &request) != 0) {
        state = errno == ENODEV ? 0 : -errno;
        close(fd);
        return state;
    }
    /* The name stays in the request; the other members share their memory. */
    if (ioctl(fd, SIOCGIFMTU, &request) == 0)
        *mtu = (uint32_t)request.ifr_mtu;
    if (ioctl(fd, SIOCGIFFLAGS, &request) != 0) {
        state = errno == ENODEV ? 0 : -errno;
    } else if ((request.ifr_flags & IFF_UP) == 0) {
        state = 0;
    } else {
        state = (request.ifr_flags & IFF_RUNNING) != 0;
        /* The kernel sets IFF_RUNNING up to a second late. Not every interface tells its carrier. */
        request.ifr_data = (void *)&carrier;
        if (ioctl(fd, SIOCETHTOOL, &request) == 0)
            state = carrier.data != 0;
    }
    close(fd);
    return state;
}

void erpc_losses(uint16_t port, struct erpc_losses *losses)
{
    struct rte_eth_stats stats;

    memset(losses, 0, sizeof *losses);
    if (rte_eth_stats_get(port, &stats) == 0) {
        losses->missed = stats.imissed;
        losses->no_mbuf = stats.rx_nombuf;
    }
}

static inline uint8_t checksums(const struct rte_mbuf *mbuf)
{
    uint64_t ip = mbuf->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK;
    uint64_t l4 = mbuf->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;

    if (ip == RTE_MBUF_F_RX_IP_CKSUM_BAD || l4 == RTE_MBUF_F_RX_L4_CKSUM_BAD)
        return 2;
    return ip == RTE_MBUF_F_RX_IP_CKSUM_GOOD && l4 == RTE_MBUF_F_RX_L4_CKSUM_GOOD;
}

uint16_t erpc_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, struct erpc_frame *frames, uint16_t n)
{
    uint16_t count = rte_eth_rx_burst(port, queue, mbufs, n);

    for (uint16_t i = 0; i < count; i++) {
        struct rte_mbuf *mbuf = mbufs[i];

        frames[i].data = rte_pktmbuf_mtod(mbuf, uint8_t *);
        rte_prefetch0(frames[i].data);
        frames[i].len = mbuf->data_len;
        frames[i].segments = mbuf->nb_segs > 255 ? 255 : mbuf->nb_segs;
        frames[i].checksums = checksums(mbuf);
    }
    return count;
}

int erpc_take(struct rte_mempool *pool, struct rte_mbuf **mbufs, uint8_t **data, uint16_t n)
{
    int error = rte_pktmbuf_alloc_bulk(pool, mbufs, n);

    if (error != 0)
        return error;
    for (uint16_t i = 0; i < n; i++)
        data[i] = rte_pktmbuf_mtod(mbufs[i], uint8_t *);
    return 0;
}

void erpc_give_back(struct rte_mbuf **mbufs, uint16_t n) { rte_pktmbuf_free_bulk(mbufs, n); }

uint16_t erpc_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, const uint16_t *lengths,
                       const struct erpc_offload *offload, uint16_t n)
{
    if (offload != NULL) {
        uint64_t ip = offload->is_v6 ? RTE_MBUF_F_TX_IPV6 : RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM;

        for (uint16_t i = 0; i < n; i++) {
            mbufs[i]->ol_flags |= ip | RTE_MBUF_F_TX_UDP_CKSUM;
            mbufs[i]->l2_len = offload->l2_len;
            mbufs[i]->l3_len = offload->is_v6 ? 40 : 20;
        }
    }
    for (uint16_t i = 0; i < n; i++) {
        if ((lengths[i] & ERPC_CHAINED) == 0) {
            mbufs[i]->data_len = lengths[i];
            mbufs[i]->pkt_len = lengths[i];
        }
    }
    return rte_eth_tx_burst(port, queue, mbufs, n);
}

void erpc_chain(struct rte_mbuf *head, uint16_t len, struct rte_mbuf *tail, uint16_t tail_len)
{
    head->data_len = len;
    head->pkt_len = len + tail_len;
    tail->data_len = tail_len;
    tail->pkt_len = tail_len;
    head->nb_segs = 2;
    head->next = tail;
}

_Static_assert(sizeof(struct rte_mbuf_ext_shared_info) <= sizeof ((struct erpc_hold *)NULL)->shared_info,
               "a hold has room for DPDK's bookkeeping");

static void done(void *address, void *hold)
{
    (void)address;
    __atomic_store_n(&((struct erpc_hold *)hold)->is_done, 1, __ATOMIC_RELEASE);
}

void erpc_chain_outside(struct rte_mbuf *head, uint16_t len, struct rte_mbuf *tail, const uint8_t *data,
                        uint16_t tail_len, struct erpc_hold *hold)
{
    struct rte_mbuf_ext_shared_info *info = (struct rte_mbuf_ext_shared_info *)hold->shared_info;

    info->free_cb = done;
    info->fcb_opaque = hold;
    rte_mbuf_ext_refcnt_set(info, 1);
    /* Nothing writes to an external buffer, and the address is the device's too: see erpc_memory. */
    rte_pktmbuf_attach_extbuf(tail, (void *)(uintptr_t)data, (rte_iova_t)(uintptr_t)data, tail_len, info);
    erpc_chain(head, len, tail, tail_len);
}

const uint8_t *erpc_second_segment(const struct rte_mbuf *mbuf)
{
    return mbuf->next == NULL ? NULL : rte_pktmbuf_mtod(mbuf->next, const uint8_t *);
}

int erpc_linearize(struct rte_mbuf *mbuf, struct erpc_frame *frame)
{
    int error = rte_pktmbuf_linearize(mbuf);

    if (error == 0) {
        frame->data = rte_pktmbuf_mtod(mbuf, uint8_t *);
        frame->len = mbuf->data_len;
        frame->segments = 1;
    }
    return error;
}

void erpc_tx_cleanup(uint16_t port, uint16_t queue)
{
    /* Drivers without this function free mbufs in bursts, and an empty burst is one. */
    if (rte_eth_tx_done_cleanup(port, queue, 0) == -ENOTSUP)
        (void)rte_eth_tx_burst(port, queue, NULL, 0);
}

struct walk {
    struct erpc_range *ranges;
    int count, most;
};

static int add_range(const struct rte_memseg_list *list, void *argument)
{
    struct walk *walk = argument;

    if (!list->external && walk->count < walk->most) {
        walk->ranges[walk->count].start = list->addr_64;
        walk->ranges[walk->count++].end = list->addr_64 + list->len;
    }
    return 0;
}

int erpc_memory(struct erpc_range *ranges, int n)
{
    struct walk walk = { ranges, 0, n };

    if (rte_eal_iova_mode() != RTE_IOVA_VA)
        return 0;
    (void)rte_memseg_list_walk(add_range, &walk);
    return walk.count;
}

void *erpc_allocate(size_t size, size_t align) { return rte_zmalloc(NULL, size, align); }

void erpc_free(void *memory) { rte_free(memory); }

int erpc_pool_is_full(const struct rte_mempool *pool) { return rte_mempool_full(pool); }

uint16_t erpc_room(const struct rte_mempool *pool)
{
    return rte_pktmbuf_data_room_size((struct rte_mempool *)pool) - RTE_PKTMBUF_HEADROOM;
}

int erpc_ring_pair(const char *a, const char *b, uint16_t queues, uint32_t size, uint32_t number)
{
    struct rte_ring *rings[2][RTE_MAX_QUEUES_PER_PORT];
    char name[RTE_RING_NAMESIZE];
    int count = 0, error = 0;

    if (queues == 0 || queues > RTE_MAX_QUEUES_PER_PORT)
        return -EINVAL;
    for (; count < 2 * queues; count++) {
        struct rte_ring **ring = &rings[count % 2][count / 2];

        snprintf(name, sizeof name, "erpc_%u_%d", number, count);
        *ring = rte_ring_create(name, size, rte_socket_id_by_idx(0), RING_F_SP_ENQ | RING_F_SC_DEQ);
        if (*ring == NULL) {
            error = -rte_errno;
            goto free_rings;
        }
    }
    if (rte_eth_from_rings(a, rings[0], queues, rings[1], queues, rte_socket_id_by_idx(0)) < 0) {
        error = rte_errno != 0 ? -rte_errno : -EINVAL;
        goto free_rings;
    }
    /* If the second port fails, the first one keeps its rings. */
    if (rte_eth_from_rings(b, rings[1], queues, rings[0], queues, rte_socket_id_by_idx(0)) < 0)
        return rte_errno != 0 ? -rte_errno : -EINVAL;
    return 0;

free_rings:
    while (count-- > 0)
        rte_ring_free(rings[count % 2][count / 2]);
    return error;
}
