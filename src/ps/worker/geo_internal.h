/* geo_internal.h - what geo.c (copies, their updates), geo_exchange.c (pushes
 * and pulls of changes) and geo_pull.c (rows that are looked up) share. */
#pragma once

#include "ps/change_log.h"
#include "ps/worker/geo.h"
#include "ps/worker/worker_internal.h"

/* The version of rows that a worker has nothing of. */
#define FL_NO_VERSION UINT64_MAX

/* A dense parameter's, p->n floats each. */
typedef struct fl_geo_param {
    float *base;
    float *delta;
    float *state[FL_MAX_STATE];
} fl_geo_param;

typedef struct fl_geo_row {
    uint64_t key;
    float *row;
} fl_geo_row;

/* A table's copies: weights, the rule's states, and behind them, as floats of
 * the row, what an accessor has to hear of its updates since the last push, and
 * the base. */
typedef struct fl_geo_table {
    fl_rows *rows;
    const fl_rows *of;   /* the table itself, which is the servers' */
    fl_geo_row *updated; /* since the last push */
    int64_t n_updated;
    size_t capacity;
    uint64_t *since; /* by lane: the version of the rows that it has of it */
} fl_geo_table;

/* Rows of one table that a pull did not find among the copies. */
typedef struct fl_geo_wanted {
    uint64_t *key;
    const float **row;  /* that have come */
    const float ***out; /* where the plan wants them */
    int64_t n;
    size_t key_capacity, row_capacity, out_capacity;
} fl_geo_wanted;

typedef struct fl_geo_slot {
    fl_geo_wanted *wanted;     /* by table; NULL: it was never used */
    const fl_pull_rows *asked; /* by the plan */
    int n_asked;
    bool under_way, own; /* own: a pull of the worker's own copies */
    uint64_t life;
} fl_geo_slot;

struct fl_geo {
    int64_t every;
    float share;         /* 1 / workers */
    fl_geo_param *param; /* by the worker's partition, as table */
    fl_geo_table *table;
    fl_geo_slot slot[FL_MOST_PULL_SLOT];
    uint64_t tick;               /* updates of copies; their rows' version */
    uint64_t pushed;             /* the last one that was pushed */
    uint64_t life;               /* grows when copies are forgotten */
    fl_update_settings settings; /* of the last update */

    /* the exchange under way */
    bool pulling;
    fl_request *changed; /* by lane and table */

    /* of a push */
    fl_push_param *push_param;
    fl_push_rows *push_rows; /* by table */
    float *delta;
    const float **at;
    uint64_t *key;
    size_t delta_capacity, at_capacity, key_capacity;
};

static inline bool fl_geo_has_updates(const fl_geo *g)
{
    return g->tick > g->pushed;
}

static inline float *fl_geo_base(const fl_rows *rows, float *row)
{
    return row + fl_rows_floats(rows); /* dim from the end */
}

/* What an accessor hears of a copy, as behind a gradient; its table has one. */
static inline float *fl_geo_pushed(const fl_rows *rows, float *row)
{
    return fl_geo_base(rows, row) - FL_N_PUSHED;
}

/* copy += now - base, base = now. */
void fl_geo_merge(float *copy, float *base, const float *now, int64_t n);

/* A copy of each row: weights and base. Keys that have one are passed over. */
fleet_status fl_geo_copy_rows(fl_rows *rows, const uint64_t *key,
                              const float *const *now, int64_t n);

/* --- geo_exchange.c ------------------------------------------------------- */

/* Send changes of the copies; ask for the servers' changes: neither is waited
 * for. Take what was asked for: all of it is waited for. */
fleet_status fl_geo_push_updates(fl_worker *w);
fleet_status fl_geo_ask(fl_worker *w);
fleet_status fl_geo_take(fl_worker *w);
bool fl_geo_has_come(const fl_worker *w);
fleet_status fl_geo_refresh(fl_remote *x);
void fl_geo_cancel(fl_worker *w);

/* --- geo_pull.c ----------------------------------------------------------- */

fleet_status fl_geo_pull(fl_remote *x, int slot, const fl_pull_rows *table,
                         int n_table, bool dense, bool prefetch, bool now);
fleet_status fl_geo_wait_pull(fl_remote *x, int slot);
bool fl_geo_came(fl_remote *x, int slot);
void fl_geo_drop(fl_remote *x, int slot);
void fl_geo_slots_done(fl_worker *w);
