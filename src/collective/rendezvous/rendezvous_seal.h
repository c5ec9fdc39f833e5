/* rendezvous_seal.h - keys of the rendezvous: the peer of a connection proves
 * which rank it is, and what passes on it is encrypted and authenticated.
 *
 *   rank      request  which rank it is, and a new public key
 *   server    answer   a new public key, and the head of what it will send
 *   rank      the head of what it will send
 *   both      records  a length, and sealed bytes
 *
 * Both sides hash three products of keys: of the two new ones, of the rank's
 * new one and the server's own, of the server's new one and the rank's own; and
 * all public keys. The result is a key for each direction. Without a secret of
 * its own neither side has it: a record that opens is the proof. New keys make
 * a recording of one connection useless on another one. In a connection each
 * record's place is part of its seal (libsodium's secretstream): one that was
 * changed, repeated, left out or put elsewhere does not open.
 *
 * docs/security.md says what this protects; docs/adr/0038 why it is so.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "runtime/device/comm.h"

enum {
    FL_SEAL_HEAD = 24,   /* bytes of a direction's head */
    FL_SEAL_MOST = 4096, /* of a record, in clear */
    FL_SEAL_RECORD = 2 + 17 + FL_SEAL_MOST,
    FL_SEAL_VERSION = 1
};
#define FL_SEAL_MAGIC UINT64_C(0x7379656b666c66)

/* In the order of bytes that both sides have: the other order has another magic
 * number. */
typedef struct fl_seal_request {
    uint64_t magic;
    uint32_t version;
    int32_t rank;
    uint8_t key[FL_RANK_KEY];
} fl_seal_request;

typedef struct fl_seal_answer {
    uint64_t magic;
    uint8_t key[FL_RANK_KEY];
    uint8_t head[FL_SEAL_HEAD];
} fl_seal_answer;

/* One end of a connection. */
typedef struct fl_seal fl_seal;

/* The keys outlive it. It serves one connection after the other.
 * FLEET_EUNSUPPORTED: the plug-in was built without libsodium. */
fleet_status fl_seal_create(fl_seal **s, const fl_rank_keys *keys, int size);
void fl_seal_destroy(fl_seal *s); /* NULL is fine */

/* A rank's end. False: what has come is no answer. */
bool fl_seal_begin(fl_seal *s, int rank, fl_seal_request *request);
bool fl_seal_finish(fl_seal *s, const fl_seal_answer *answer,
                    uint8_t head[FL_SEAL_HEAD]);

/* The server's. False: no rank has said that. */
bool fl_seal_accept(fl_seal *s, const fl_seal_request *request,
                    fl_seal_answer *answer);

/* The rank that the server's end has heard of; once a record has opened, it is
 * that one. */
int fl_seal_rank(const fl_seal *s);

/* Seal n bytes, FL_SEAL_MOST at most; returns the record's size. One thread at
 * a time, beside one that opens records. */
size_t fl_seal_wrap(fl_seal *s, const void *bytes, size_t n,
                    uint8_t record[FL_SEAL_RECORD]);

/* Where the next bytes of the connection belong, and how many are missing; then
 * that `came` of them have come. *n grows by what has opened, FL_SEAL_MOST at
 * most, which is then at `bytes`. False: the peer has not sealed that. */
uint8_t *fl_seal_room(fl_seal *s, size_t *missing);
bool fl_seal_open(fl_seal *s, size_t came, char *bytes, size_t *n);
