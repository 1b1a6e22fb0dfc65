/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DCUDP for C programs: libdcudp.so. Link with -ldcudp.
 *
 * A node is one UDP port with all its connections. A thread of its own serves it. All functions may be called from
 * any thread and return at once, except dcudp_close. Events wait in a queue: poll the descriptor of dcudp_event_fd,
 * and call dcudp_next_event until it returns 0. The peers are held up while 16 MiB of events wait.
 *
 * A node belongs to the process that opened it. In a child process (fork) its functions fail, dcudp_next_event returns
 * 0, and dcudp_close frees its memory only.
 *
 * Functions that can fail return 0, or -1 and a sentence in `error`, which is always terminated.
 *
 * Python reads the declarations between the two marks below.
 */
#ifndef DCUDP_H
#define DCUDP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* declarations begin */
enum { DCUDP_ABI = 1 };

enum dcudp_flag {
	DCUDP_LISTENS = 1,     /* accept connections */
	DCUDP_COUNTS_LOAD = 2, /* answer measurements (dcudp_send_load) of peers */
	DCUDP_NO_SEGMENT = 4,  /* do not use UDP_SEGMENT */
	DCUDP_NO_GRO = 8,      /* do not use UDP_GRO */
	DCUDP_NO_TXTIME = 16   /* do not use SO_TXTIME */
};

/* Numbers that are 0 and pointers that are NULL stand for the default. */
struct dcudp_options {
	const char *bind;       /* "127.0.0.1:0" or "[::1]:0": numbers only; required */
	const char *peer;       /* the later peer of dcudp_connect, whose path decides about MTU and SO_TXTIME */
	const char *key_file;   /* required unless both ends are on loopback */
	const char *folder;     /* for received files; without it, files are refused */
	uint64_t max_rate_bps;  /* no connection sends faster */
	uint64_t link_rate_bps; /* capacity of the bottleneck link */
	uint64_t dead_after_us; /* a connection ends after this time without any packet of the peer */
	uint64_t handshake_timeout_us;
	uint32_t mtu_bytes; /* the largest UDP payload to send */
	uint32_t flags;     /* of enum dcudp_flag */
};

enum dcudp_kind {
	DCUDP_CONNECTED = 1,     /* text: the peer's address; incoming */
	DCUDP_MESSAGE = 2,       /* data */
	DCUDP_STREAM = 3,        /* number: the stream; data; last */
	DCUDP_WRITABLE = 4,      /* after DCUDP_FULL: send again */
	DCUDP_MODE_CHANGED = 5,  /* number: 0 UDP Mode, 1 Congestion Mode */
	DCUDP_FILE_PROGRESS = 6, /* number: the transfer; incoming; name in data; done, size, resumed */
	DCUDP_FILE_DONE = 7,     /* the same, and hash */
	DCUDP_FILE_FAILED = 8,   /* the same; text: why */
	DCUDP_LOAD_DONE = 9,     /* done: bytes; elapsed_us, cpu_us: of the receiver */
	DCUDP_LOAD_REFUSED = 10,
	DCUDP_CLOSED = 11, /* text: why, and how many bytes the peer did not confirm; NULL if both ends wished the end
			      and all data arrived. No event of the connection follows. */
	DCUDP_BROKEN = 12  /* text: why. The node has ended. */
};

struct dcudp_event {
	uint32_t kind;
	uint32_t connection;
	uint32_t number;
	uint8_t incoming;
	uint8_t last;
	uint64_t done, size, resumed; /* bytes of a file */
	uint64_t elapsed_us, cpu_us;
	const uint8_t *data;
	size_t data_bytes;
	const char *text;
	uint8_t hash[32]; /* SHA-256 of the file */
	void *owner;      /* for dcudp_free_event */
};

struct dcudp_statistics {
	uint32_t mode; /* 0 UDP Mode, 1 Congestion Mode */
	uint32_t mtu_bytes;
	double rate_pps; /* packets a second that pacing allows */
	uint64_t rtt_us, rtt_idle_us;
	uint64_t send_buffer_bytes, receive_buffer_bytes;
	uint64_t data_sent, retransmitted, acknowledged, data_received, duplicates, lost, ce_received, control_sent;
	uint64_t congestion_entries, timeouts;
	uint32_t peer_window_packets;
	uint32_t ecn_bleached; /* the path erases ECN */
};

struct dcudp_node_statistics {
	uint64_t packets_sent, bytes_sent, send_calls, joined_sent;
	uint64_t packets_received, bytes_received, receive_calls, joined_received, ce_received;
	uint64_t too_large, refused;                            /* packets that the kernel did not take */
	uint64_t paced, late_mean_us, late_p99_us, late_max_us; /* timers, and how late they ran */
	uint64_t cpu_us;                                        /* of the node's thread */
	uint32_t segments, txtime;                              /* whether UDP_SEGMENT and SO_TXTIME are in use */
	uint32_t fragments; /* whether packets may be fragmented, because a path's MTU shrank */
};

enum dcudp_sent {
	DCUDP_SENT = 0,
	DCUDP_FULL = 1, /* wait for DCUDP_WRITABLE */
	DCUDP_TOO_LARGE = 2,
	DCUDP_NO_CONNECTION = 3
};

typedef struct dcudp_node dcudp_node;

uint32_t dcudp_abi(void);
dcudp_node *dcudp_open(const struct dcudp_options *options, char *error, size_t error_bytes); /* NULL: failed */
void dcudp_close(dcudp_node *node); /* ends all connections at once, and waits for the thread */
int dcudp_local(const dcudp_node *node, char *address, size_t address_bytes);
int dcudp_event_fd(const dcudp_node *node);
int dcudp_next_event(const dcudp_node *node, struct dcudp_event *event); /* 1: there was one */
void dcudp_free_event(struct dcudp_event *event);
int dcudp_connect(const dcudp_node *node, const char *peer, uint32_t *connection, char *error, size_t error_bytes);
int dcudp_send_message(const dcudp_node *node, uint32_t connection, const uint8_t *data, size_t data_bytes);
int dcudp_send_stream(const dcudp_node *node, uint32_t connection, uint32_t stream, int last, const uint8_t *data,
		      size_t data_bytes);
int dcudp_send_file(const dcudp_node *node, uint32_t connection, const char *path, const char *name, uint32_t *transfer,
		    char *error, size_t error_bytes);
int dcudp_send_load(const dcudp_node *node, uint32_t connection, uint64_t duration_us, char *error, size_t error_bytes);
void dcudp_close_connection(const dcudp_node *node, uint32_t connection); /* after its data has arrived */
void dcudp_abort_connection(const dcudp_node *node, uint32_t connection); /* at once */
int dcudp_get_statistics(const dcudp_node *node, uint32_t connection, struct dcudp_statistics *statistics);
void dcudp_get_node_statistics(const dcudp_node *node, struct dcudp_node_statistics *statistics);
int dcudp_make_key(const char *path, char *error, size_t error_bytes); /* a new key file */
/* declarations end */

#ifdef __cplusplus
}
#endif

#endif
