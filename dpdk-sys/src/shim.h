/* The part of DPDK that erpc uses, with structs of our own instead of DPDK's. */
#ifndef ERPC_DPDK_SHIM_H
#define ERPC_DPDK_SHIM_H

#include <stddef.h>
#include <stdint.h>

struct rte_mbuf;
struct rte_mempool;

/* Exported by DPDK. Declared here, because its headers would bring in thousands of items. */
int rte_eal_init(int argc, char **argv);
const char *rte_strerror(int errnum);
int rte_thread_register(void);
void rte_thread_unregister(void);
struct rte_mempool *rte_pktmbuf_pool_create(const char *name, unsigned n, unsigned cache_size,
                                            uint16_t priv_size, uint16_t data_room_size, int socket_id);
void rte_mempool_free(struct rte_mempool *pool);

/* What a device can do. */
struct erpc_device {
    uint16_t port;
    uint16_t max_mtu;
    uint16_t max_rx_queues;
    uint16_t max_tx_queues;
    uint8_t rx_checksums; /* verifies IPv4 and UDP checksums of received packets */
    uint8_t tx_segments;  /* sends frames of several segments */
    uint8_t tx_checksums; /* computes IPv4 and UDP checksums of sent packets */
    uint8_t mac[6];
    int socket;
    uint32_t interface; /* number of the kernel's interface below the device; 0 if there is none */
};

/* How to start a device. Descriptor counts are adjusted to what the device accepts. */
struct erpc_setup {
    uint16_t mtu; /* 0: leave the device's */
    uint16_t rx_queues;
    uint16_t tx_queues;
    uint16_t rx_descriptors;
    uint16_t tx_descriptors;
    uint8_t rx_checksums;
    uint8_t tx_checksums;
    uint8_t tx_segments;
    uint8_t rss; /* Result: the device spreads datagrams over its receive queues by their ports. */
};

/* A received frame: its first segment. */
struct erpc_frame {
    uint8_t *data;
    uint32_t len;
    uint8_t segments;  /* saturates at 255 */
    uint8_t checksums; /* 0: unknown, 1: good, 2: bad */
};

/* How the device finds the headers whose checksums it computes. */
struct erpc_offload {
    uint8_t is_v6;
    uint8_t l2_len;
};

/* Tells when the device has read memory outside of mbufs. */
struct erpc_hold {
    uint64_t shared_info[3]; /* struct rte_mbuf_ext_shared_info */
    uint8_t is_done;         /* written with release ordering, by any thread */
};

/* A range of addresses. */
struct erpc_range {
    uint64_t start;
    uint64_t end;
};

/* A device's counters of lost packets. */
struct erpc_losses {
    uint64_t missed;
    uint64_t no_mbuf;
};

/* The last error of this thread's DPDK calls (rte_errno is a thread-local variable). */
int erpc_errno(void);

/* The device with this name; a negative error if there is none. */
int erpc_device_find(const char *name, struct erpc_device *device);

/* Configures and starts a device. On success, stores the counts of descriptors in `setup`. A negative error otherwise; `*step` names the call that failed. */
int erpc_device_start(uint16_t port, struct erpc_setup *setup, struct rte_mempool *pool, const char **step);
void erpc_device_stop(uint16_t port);

/* Starts a device with the setup that it has, after stopping it if it runs. If starting fails, returns
 * a negative error, and the device stays stopped. */
int erpc_device_restart(uint16_t port, uint8_t runs);

/* Asks the device to put datagrams for UDP port `udp_port + i` into receive queue i, for the first
 * `queues` queues. All rules or none: then a negative error. */
int erpc_steer(uint16_t port, uint16_t udp_port, uint16_t queues, uint8_t is_v6, uint8_t has_vlan);

/* 1 if the link is up, 0 if down; `*mbps` is its rate, 0 if unknown. May drive the connection of
 * drivers that connect in the link query (memif). */
int erpc_link(uint16_t port, uint32_t *mbps);
void erpc_losses(uint16_t port, struct erpc_losses *losses);

/* The kernel's interface with this number: 1 if it is up and its link too, 0 if not or if it is gone,
 * a negative error if the kernel cannot be asked. `*mtu` is its MTU, 0 if unknown. */
int erpc_interface(uint32_t interface, uint32_t *mtu);

/* Receives up to `n` frames and describes them. */
uint16_t erpc_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, struct erpc_frame *frames, uint16_t n);

/* Takes `n` empty mbufs, all or none (then a negative error), and tells where their data begins. */
int erpc_take(struct rte_mempool *pool, struct rte_mbuf **mbufs, uint8_t **data, uint16_t n);

/* Returns mbufs to their pools. */
void erpc_give_back(struct rte_mbuf **mbufs, uint16_t n);

/* In a length: the mbuf's own lengths are set. */
#define ERPC_CHAINED 0x8000

/* Sets the mbufs' lengths, then sends them with one doorbell. Returns how many the device took.
 * The device computes checksums unless `offload` is NULL. */
uint16_t erpc_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, const uint16_t *lengths,
                       const struct erpc_offload *offload, uint16_t n);

/* Makes the ports net_ring_<a> and net_ring_<b>. What one sends, the other receives, over `queues`
 * rings of `size` entries (a power of two) in each direction; `number` distinguishes their names.
 * A negative error otherwise. */
int erpc_ring_pair(const char *a, const char *b, uint16_t queues, uint32_t size, uint32_t number);

/* Makes one packet of two, each of one segment: `len` bytes of `head`, then `tail_len` of `tail`.
 * For erpc_tx_burst, its length has the bit ERPC_CHAINED. */
void erpc_chain(struct rte_mbuf *head, uint16_t len, struct rte_mbuf *tail, uint16_t tail_len);

/* As erpc_chain, with a mbuf whose data are the `tail_len` bytes at `data`. When it is freed, sets
 * `hold->is_done`. `hold` must live until then. */
void erpc_chain_outside(struct rte_mbuf *head, uint16_t len, struct rte_mbuf *tail, const uint8_t *data,
                        uint16_t tail_len, struct erpc_hold *hold);

/* Where the data of the second segment begin; NULL if there is none. */
const uint8_t *erpc_second_segment(const struct rte_mbuf *mbuf);

/* Makes a received frame of several segments one segment, if the first one has room. */
int erpc_linearize(struct rte_mbuf *mbuf, struct erpc_frame *frame);

/* Frees mbufs that the device has sent. */
void erpc_tx_cleanup(uint16_t port, uint16_t queue);

/* DPDK's memory, where devices read at the addresses that this process uses. Returns the number of
 * ranges, at most `n`; 0 if devices use other addresses. */
int erpc_memory(struct erpc_range *ranges, int n);

/* Zeroed memory of DPDK; NULL if there is none. */
void *erpc_allocate(size_t size, size_t align);
void erpc_free(void *memory);

/* Whether all mbufs are back in their pool. Only when no thread uses the pool. */
int erpc_pool_is_full(const struct rte_mempool *pool);

/* The bytes of a mbuf that data may fill. */
uint16_t erpc_room(const struct rte_mempool *pool);

#endif
