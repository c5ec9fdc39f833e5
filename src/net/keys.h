/* keys.h - the keys of a job: each process has a pair of ZeroMQ's CURVE, and a
 * folder has them all.
 *
 *     public            a line for each process: "server 0 KEY", "worker 3 KEY"
 *     server-0.secret   the other half of a pair, mode 0600: of that process
 *     worker-3.secret   alone
 *     subscriber-0.secret
 *     control-0.secret
 *
 * A process reads `public` and its own secret, and nothing else: a node has the
 * secrets that its processes need. docs/security.md says what keys are good
 * for.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* A key as a text (Z85), and as bytes. */
enum { FL_KEY_SIZE = 41, FL_KEY_BYTES = 32 };
typedef char fl_key[FL_KEY_SIZE];

typedef enum fl_key_role {
    FL_ROLE_SERVER,
    FL_ROLE_WORKER,
    FL_ROLE_SUBSCRIBER, /* may follow what the servers train, and no more */
    FL_ROLE_CONTROL,    /* fleetctl's: may ask servers what they have */
    FL_N_ROLE
} fl_key_role;

/* What one process has read. */
typedef struct fl_keys {
    fl_key own, secret; /* its pair */
    /* of all: known[role][number], n[role] of them; "": not in the folder */
    fl_key *known[FL_N_ROLE];
    int n[FL_N_ROLE];
} fl_keys;

/* Make a folder of keys, with one for fleetctl if there are servers.
 * FLEET_EEXIST: there is one with something in it. FLEET_EUNSUPPORTED: this
 * libzmq has no CURVE. */
fleet_status fl_keys_make(const char *folder, int n_server, int n_worker);
fleet_status fl_keys_make_all(const char *folder, const int n[FL_N_ROLE]);

/* The keys of one process.
 *
 *   FLEET_ENOENT   no such folder, no line or no secret of that process
 *   FLEET_EINVAL   a secret that other users may read, or that is not the
 *                  other half of the public key
 *   FLEET_EFORMAT  not a key
 *   FLEET_EUNSUPPORTED  this libzmq has no CURVE
 */
fleet_status fl_keys_read(fl_keys **keys, const char *folder, bool server,
                          int index);
fleet_status fl_keys_read_as(fl_keys **keys, const char *folder,
                             fl_key_role role, int index);
void fl_keys_destroy(fl_keys *k); /* NULL is fine */

/* The bytes of a key. */
void fl_keys_bytes(const fl_key key, uint8_t bytes[FL_KEY_BYTES]);

/* The number of the process of that role whose public key that is; -1: none of
 * the job. */
int fl_keys_find(const fl_keys *k, fl_key_role role,
                 const uint8_t key[FL_KEY_BYTES]);
