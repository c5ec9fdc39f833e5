/* net_kit.h - sockets that talk, packets whose bytes are known, a message that
 * has everything. */
#pragma once

#include "net/message.h"
#include "net/socket.h"

enum { NET_WAIT = 30000 }; /* ms: more than anything here may take */

extern fl_packet_pool *net_pool;

void net_open_pool(void);
void net_close_pool(void);

/* --- sockets -------------------------------------------------------------- */

/* The pool is opened with the first, and closed by net_end(). */
fl_socket *net_listen(const char *address, char bound[FL_ADDRESS_SIZE]);
fl_socket *net_connect(const char *address);
void net_end(fl_socket *a, fl_socket *b); /* NULL is fine */

/* A frame whose numbers depend on the seed. */
void net_fill(fl_packet *p, size_t size, unsigned seed);
void net_check_filled(const fl_frame *f, size_t size, unsigned seed);

/* Packets of one such frame. */
void net_send(fl_socket *s, const fl_peer *to, size_t size, unsigned seed);
void net_check_received(fl_socket *s, fl_peer *from, size_t size,
                        unsigned seed);

/* Waits for one. */
fl_packet *net_receive(fl_socket *s, fl_peer *from);

/* There and back. */
void net_talk(fl_socket *server, fl_socket *client, unsigned seed);

/* --- messages ------------------------------------------------------------- */

extern const fl_msg_head net_head;
void net_check_head(const fl_msg_head *got, const fl_msg_head *want);

/* A section with these columns: 2 runs, 3 keys, bytes that op and column
 * say. */
void net_add_section(fl_msg_writer *w, int op, int columns);
void net_check_section(const fl_msg *msg, int i, int op, int columns);

/* A section of each op, with columns op * 11 % 64. */
fl_packet *net_sample(int kind, bool whole);

void net_fill_bytes(uint8_t *data, size_t size, unsigned seed);
