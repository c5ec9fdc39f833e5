/* rendezvous.h - how ranks find each other without a launcher's help, and what they
 * tell each other beside their data: over TCP, to a thread at rank 0, the hub.
 *
 * Each rank has one line to the hub, rank 0 too, and greets it first: who is of
 * another job or version, or comes as a rank that is there already, is refused,
 * and both sides say so. Then
 *
 *   CALL  what a rank is about to do; the hub gives ALL to all ranks when it
 * has everybody's POST  a message that a rank sends or expects; GO to both when
 * both are there FAIL  a rank's failure, which all others get; the hub has its
 * own, too: a rank that is gone, or does not come by the deadline BYE   a rank
 * ends its group
 *
 * ALL and GO come to all ranks in one order. Who follows it cannot wait for a
 * rank that waits for it.
 *
 * Nothing that comes is believed: sizes are bounded, what makes no sense ends
 * the line. Numbers are in the order of bytes that both sides have: a greeting
 * of the other one has another magic number.
 */
#ifndef FL_COLLECTIVE_RENDEZVOUS_RENDEZVOUS_H
#define FL_COLLECTIVE_RENDEZVOUS_RENDEZVOUS_H

#include "collective/comm_base.h"

enum {
    FL_RENDEZVOUS_VERSION = 2,
    FL_RENDEZVOUS_TEXT = 800,
    FL_RENDEZVOUS_NAME = 128
};
#define FL_RENDEZVOUS_MAGIC UINT64_C(0x746565666c6c66)

typedef enum fl_word {
    FL_WORD_NONE,
    FL_WORD_CALL,    /* an fl_call and more */
    FL_WORD_ALL,     /* of each rank: uint32_t bytes, its call and more */
    FL_WORD_POST,    /* fl_post */
    FL_WORD_GO,      /* fl_post */
    FL_WORD_FAIL,    /* int32_t code, text */
    FL_WORD_BYE,     /* nothing */
    FL_WORD_WELCOME, /* uint64_t FL_RENDEZVOUS_MAGIC: all ranks are there */
    FL_N_WORD
} fl_word;

typedef struct fl_rendezvous_frame {
    uint32_t word, bytes;
} fl_rendezvous_frame;

typedef struct fl_post {
    int32_t way, rank; /* FL_OUT, FL_IN; the other one */
    int64_t n;
} fl_post;

/* What a rank says first. The hub looks at magic and version before it reads
 * on. */
typedef struct fl_greeting {
    uint64_t magic;
    uint32_t version;
    int32_t rank, size, ordered;
    char job[FL_RENDEZVOUS_NAME];
    char host[40]; /* of this start of this machine */
    char bus[32];  /* the GPU on its bus; "": none that counts */
} fl_greeting;

typedef struct fl_rendezvous {
    fl_greeting own;
    const char *address; /* "tcp://ip:port" */
    int listener;        /* rank 0's, or 0 */
    int64_t connect_ms;  /* until all are there */
    int64_t deadline_ms;
    struct fl_log *log;
} fl_rendezvous;

/* Bytes of a call and what may follow it. */
size_t fl_rendezvous_most_call(int size);

/* --- sockets ----------------------------------------------------------------
 */

/* A listening socket; FLEET_EIO names the address. Port 0: the kernel's, which
 * `bound` then has. */
fleet_status fl_rendezvous_listen(const char *address, int *fd,
                                  char bound[FL_RENDEZVOUS_NAME]);

/* One try to reach the address within ms, fd -1 if there is nobody.
 * FLEET_EINVAL: no address. */
fleet_status fl_rendezvous_connect(const char *address, int64_t ms, int *fd);

/* "10.0.0.1:4711", of this end or the other. */
void fl_rendezvous_name(int fd, bool other, char name[FL_RENDEZVOUS_NAME]);

bool fl_rendezvous_send(int fd, fl_word word, const void *a, size_t n_a,
                        const void *b, size_t n_b);
bool fl_rendezvous_send_failure(int fd, const fl_error *e);

/* Bytes that have come and are not whole yet. */
typedef struct fl_inbox {
    char *data;
    size_t n, room;
} fl_inbox;

/* Read what is there: false when the line has ended. */
bool fl_inbox_read(fl_inbox *in, int fd);

/* The first frame, if it is whole, and where its bytes are; FL_WORD_NONE: not
 * yet. False: it cannot be one. */
bool fl_inbox_frame(const fl_inbox *in, fl_rendezvous_frame *f,
                    const char **bytes);
void fl_inbox_drop(fl_inbox *in, size_t n);

/* The first frame of that word, behind others perhaps. */
bool fl_inbox_find(const fl_inbox *in, fl_word word, fl_rendezvous_frame *f,
                   const char **bytes);

/* A failure as it was told; of `bytes` that are long enough, or not. */
fleet_status fl_rendezvous_failure(const char *bytes, size_t n);

/* --- the hub ----------------------------------------------------------------
 */

typedef struct fl_rendezvous_server fl_rendezvous_server;

/* Rank 0's thread; *fd is rank 0's own line. It ends when that one does. */
fleet_status fl_rendezvous_server_start(fl_rendezvous_server **hub,
                                        const fl_rendezvous *m, int *fd);
void fl_rendezvous_server_name(const fl_rendezvous_server *hub,
                               char name[FL_RENDEZVOUS_NAME]);
void fl_rendezvous_server_join(
    fl_rendezvous_server *hub); /* after rank 0's line has ended */

/* --- a line -----------------------------------------------------------------
 */

typedef struct fl_rendezvous_client fl_rendezvous_client;

/* All ranks have come; or FLEET_ETIMEDOUT, who is missing or that nobody
 * listens, FLEET_EINVAL why this one is refused, FLEET_EPEER what listens there
 * is no rank of ours. */
fleet_status fl_rendezvous_client_open(fl_rendezvous_client **line,
                                       const fl_rendezvous *m);

/* From any thread. False: the line has ended, which next() will say. */
bool fl_rendezvous_client_send(fl_rendezvous_client *l, fl_word word,
                               const void *a, size_t n_a, const void *b,
                               size_t n_b);

/* What has come, if anything (word FL_WORD_NONE: nothing), until drop().
 * FLEET_EPEER: rank 0 is gone without a word. After a BYE nothing comes. */
fleet_status fl_rendezvous_client_next(fl_rendezvous_client *l,
                                       fl_rendezvous_frame *f,
                                       const char **bytes);
void fl_rendezvous_client_drop(fl_rendezvous_client *l,
                               const fl_rendezvous_frame *f);

/* Whether a failure has come, behind what has not been taken yet, too. */
fleet_status fl_rendezvous_client_failure(fl_rendezvous_client *l);

/* FLEET_EPEER: rank 0 has ended its group. */
fleet_status fl_rendezvous_client_check(const fl_rendezvous_client *l);

/* Until something comes, the bell rings, or ms are over. */
void fl_rendezvous_client_rest(fl_rendezvous_client *l, int ms);
void fl_rendezvous_client_ring(fl_rendezvous_client *l); /* from any thread */

/* This end's address: another listener can be beside it. */
void fl_rendezvous_client_name(const fl_rendezvous_client *l,
                               char name[FL_RENDEZVOUS_NAME]);
void fl_rendezvous_client_close(
    fl_rendezvous_client *l); /* says BYE; NULL is fine */

#endif
