/* ask.h - fleetctl asks all lanes of a job, and gets what each says. */
#pragma once

#include "base/json/json.h"
#include "fleet/role/role.h"

typedef struct asked_lane {
    int server;  /* whose process it is; -1: the place is free */
    int number;  /* among the lanes and copies of that process */
    fl_json *is; /* what it has said; NULL: nothing, yet */
} asked_lane;

typedef struct asked_job asked_job;

/* Sockets to the servers of the role; those that have joined the job are put
 * into it, behind the others, as they become known. keys NULL: none are used.
 */
fleet_status ask_open(asked_job **j, const fl_role *role, const fl_keys *keys);
void ask_close(asked_job *j); /* NULL is fine */

/* Until all have answered, the first lane of server `also` (-1: none) among
 * them, and all lanes are found, for so long at most. Who is refused fails with
 * the server's words. */
fleet_status ask_all(asked_job *j, int also, int timeout_ms);

/* Of each server it is said how many lanes it has, and who leads them. */
bool ask_is_whole(const asked_job *j);

/* Words of ps/control/control.h to the lane at that place of ask_lanes(), until
 * it has done so. */
fleet_status ask_command(asked_job *j, int at, const char *words,
                         int timeout_ms);

/* Where ask_lanes() has the first lane of a server. */
int ask_first_of(int server);

/* It does not answer, and no other process leads the lane that was there. */
bool ask_misses(const asked_job *j, int at);

/* In their order: those of server 0, the copies that its process has, and so
 * on; of a server that is silent its first one alone, without a word. */
const asked_lane *ask_lanes(const asked_job *j, int *n);
