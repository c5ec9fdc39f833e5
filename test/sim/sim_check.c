/* sim_check.c - a run compared with its script's reference, and the words of
 * one that a fault has ended. */
#define SUITE sim_kit
#include "ps/server/lane_replica.h"
#include "sim_internal.h"
#include "sim_reference.h"
#include "sim_save.h"
#include "test.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/store/live_hash.h"
#include "runtime/store/table.h"

/* The last ones are of jobs whose keys live, and count them. */
enum { N_CHECKED = SIM_N_TABLE + 2 };
static const char *const tables[N_CHECKED] = {"first", "second",
                                              "first.waiting", "second.filter"};

static char difference[2000];

#define DIFFERS(...)                                                           \
    (snprintf(difference, sizeof difference, __VA_ARGS__),                     \
     (const char *)difference)

/* Blocks of the lane are the reference's, and it keeps no others. */
static const char *check_blocks(const sim_reference *r, const sim_lane *l,
                                int *n_block)
{
    const fl_bucket_set *own = &l->core->aggregate.own;

    for (int i = 0; i < SIM_MOST_PARAM && r->param[i]; i++)
        for (int64_t b = 0; b < fl_blocks_of(r->param[i]); b++) {
            const fl_param *p = fl_store_param(l->store, r->param[i]->name);
            bool ours = fl_bucket_set_has(own, fl_block_bucket(l->store, p, b));

            *n_block += ours;
            if (ours != (fl_block_offset(p, b) >= 0) ||
                (ours && !sim_same_block(p, r->param[i], b)))
                return DIFFERS("block %" PRId64 " of \"%s\" on lane %d", b,
                               p->name, l->number);
        }
    return NULL;
}

typedef struct row_check {
    fl_rows *want;
    const sim_lane *l;
    int n_bad;
} row_check;

static fleet_status check_row(void *arg, int bucket, uint64_t key,
                              const float *row)
{
    const fl_row_head *head = (const fl_row_head *)(const void *)row - 1;
    row_check *c = arg;
    size_t n = (size_t)(c->want->dim + fl_rows_floats(c->want));
    float *want;

    CHECK_OK(c->want->methods->find(c->want, &key, 1, &want));
    if (!want || !fl_bucket_set_has(&c->l->core->aggregate.own, bucket) ||
        memcmp(want, row, n * sizeof *row) != 0 ||
        fl_row_of(want)->step != head->step)
        c->n_bad++;
    return FLEET_OK;
}

static const char *check_tables(const sim_reference *r, const sim_lane *l,
                                int64_t count[N_CHECKED])
{
    for (int t = 0; t < N_CHECKED; t++) {
        const fl_rows *rows = fl_store_rows(l->store, tables[t]);
        row_check c = {fl_store_rows(r->store, tables[t]), l, 0};

        if (!rows)
            continue;
        count[t] += rows->methods->count(rows);
        CHECK_OK(rows->methods->each(rows, check_row, &c));
        if (fl_live_hash_check(rows) != FLEET_OK)
            return DIFFERS("lane %d: %s", l->number, fleet_last_error());
        if (c.n_bad)
            return DIFFERS("%d rows of \"%s\" on lane %d", c.n_bad, tables[t],
                           l->number);
    }
    return NULL;
}

static const char *check_lane(const sim_reference *r, const sim_lane *l)
{
    if (!l->core)
        return DIFFERS("lane %d is gone", l->number);
    if (fl_lane_state_of(l->core) != FL_LANE_LEFT)
        return DIFFERS("lane %d is in state %d: %s", l->number,
                       fl_lane_state_of(l->core), fl_lane_error(l->core)->text);
    if (fl_lane_version(l->core) != r->store->updates)
        return DIFFERS("lane %d has version %" PRId64 ", not %" PRId64,
                       l->number, fl_lane_version(l->core), r->store->updates);
    for (int w = 0; w < r->o->n_worker; w++)
        if (l->core->stream[w].done != r->steps[w])
            return DIFFERS("lane %d has %" PRIu64 " steps of worker %d, not "
                           "%" PRIu64,
                           l->number, l->core->stream[w].done, w, r->steps[w]);
    return NULL;
}

static const char *check_worker(const sim_reference *r, const sim_worker *w)
{
    if (w->phase != SIM_ENDED || w->status != FLEET_OK)
        return DIFFERS("worker %d %s: %s", w->index,
                       w->phase == SIM_ENDED ? "failed" : "has not ended",
                       w->text);
    if (strcmp(w->log, fl_text_chars(&r->log[w->index])) != 0)
        return DIFFERS("worker %d saw\n%snot\n%s", w->index, w->log,
                       fl_text_chars(&r->log[w->index]));
    return NULL;
}

static const char *check_counts(const sim_reference *r, int n_block,
                                const int64_t count[N_CHECKED])
{
    for (int t = 0; t < N_CHECKED; t++) {
        const fl_rows *rows = fl_store_rows(r->store, tables[t]);

        if (rows && rows->methods->count(rows) != count[t])
            return DIFFERS("%" PRId64 " rows of \"%s\", not %" PRId64, count[t],
                           tables[t], rows->methods->count(rows));
    }
    for (int i = 0; i < SIM_MOST_PARAM && r->param[i]; i++)
        n_block -= (int)fl_blocks_of(r->param[i]);
    return n_block ? DIFFERS("%d blocks too many", n_block) : NULL;
}

/* What all workers have left is whole, whatever has become of other lanes. */
static const char *check_state(const sim_reference *r, const sim_lane *l,
                               int *n_block, int64_t count[N_CHECKED])
{
    const char *bad = check_lane(r, l);

    if (!bad)
        bad = check_blocks(r, l, n_block);
    return bad ? bad : check_tables(r, l, count);
}

static bool has_role(const sim_lane *l, fl_replica_role a, fl_replica_role b)
{
    return l->core &&
           (fl_lane_replica(l->core) == a || fl_lane_replica(l->core) == b);
}

/* One that has not gone elsewhere. */
static bool leads(const sim_lane *l)
{
    return has_role(l, FL_REPLICA_LEADS, FL_REPLICA_ALONE) ||
           has_role(l, FL_NO_REPLICA, FL_NO_REPLICA);
}

const sim_lane *sim_leader_of(const sim *s, int lane)
{
    const sim_lane *copy[] = {&s->lane[lane], &s->lane[s->n_lane + lane]};

    if (s->all_lanes == s->n_lane)
        return copy[0];
    for (int i = 0; i < 2; i++)
        if (leads(copy[i]))
            return copy[i];
    for (int i = 0; i < 2; i++)
        if (has_role(copy[i], FL_REPLICA_FOLLOWS, FL_REPLICA_FOLLOWS) &&
            copy[i]->core->replica->view != FL_VIEW_NONE)
            return copy[i];
    return NULL;
}

/* The copy that workers have left; what the other one has, if it is whole, are
 * the same bits. */
static const char *check_copies(const sim *s, const sim_reference *r, int lane,
                                int *n_block, int64_t count[N_CHECKED])
{
    const sim_lane *leader = sim_leader_of(s, lane), *other;
    int64_t unused[N_CHECKED] = {0};
    const char *bad;
    int n = 0;

    if (!leader)
        return DIFFERS("lane %d: it has no copy that leads", lane);
    bad = check_state(r, leader, n_block, count);
    if (bad || !has_role(leader, FL_REPLICA_LEADS, FL_REPLICA_LEADS))
        return bad;
    other = &s->lane[sim_other_copy(s, leader->number)];
    return other->core ? check_state(r, other, &n, unused) : NULL;
}

static const char *compare(const sim *s, const sim_reference *r)
{
    int64_t count[N_CHECKED] = {0};
    const char *bad = NULL;
    int n_block = 0;

    for (int w = 0; w < s->o.n_worker && !bad; w++)
        bad = check_worker(r, &s->worker[w]);
    for (int i = 0; i < s->n_lane && !bad; i++)
        bad = check_copies(s, r, i, &n_block, count);
    return bad ? bad : check_counts(r, n_block, count);
}

const char *sim_check(sim *s, const sim_script *k)
{
    sim_reference r;
    const char *bad;

    sim_reference_open(&r, s, k);
    bad = compare(s, &r);
    sim_reference_close(&r);
    return bad;
}

/* --- a fault -------------------------------------------------------------- */

/* Beyond the deadlines: pauses, a heartbeat, and the way of a message. */
enum { SLACK_MS = 1500 };

bool sim_is_well(const sim *s)
{
    for (int i = 0; i < s->o.n_worker; i++)
        if (s->worker[i].phase != SIM_ENDED || s->worker[i].status != FLEET_OK)
            return false;
    for (int i = 0; i < s->n_lane; i++) {
        const sim_lane *l = s->o.moves > 0 ? sim_leader_of(s, i) : &s->lane[i];

        if (!l || !l->core || fl_lane_state_of(l->core) != FL_LANE_LEFT)
            return false;
    }
    return true;
}

/* Which names the words may have, and by when they must have been said. */
typedef struct verdict {
    const sim *s;
    const sim_fault *f;
    const sim_fault_state *state;
    char worker[20], server[20]; /* "": not this one */
    bool any_name;               /* not everybody knew of everybody */
} verdict;

static verdict make_verdict(const sim *s, int fault)
{
    const sim_fault *f = &s->o.fault[fault];
    verdict v = {.s = s, .f = f, .state = &s->fault[fault]};

    v.any_name = !v.state->all_joined ||
                 (f->kind == SIM_CUT &&
                  (f->worker == SIM_NOBODY || f->server == SIM_NOBODY));
    if (f->worker != SIM_NOBODY)
        snprintf(v.worker, sizeof v.worker, "worker %d", f->worker);
    if (f->server != SIM_NOBODY)
        snprintf(v.server, sizeof v.server, "server %d",
                 f->server % s->o.n_server);
    return v;
}

/* The first name is whose fault it is. */
static bool names(const char *text, const char *name)
{
    size_t n = strlen(name);
    const char *at = n > 0 ? strstr(text, name) : NULL;

    return at && (at[n] < '0' || at[n] > '9');
}

static const char *check_words(const verdict *v, const char *who, int i,
                               bool newcomer, fleet_status code,
                               const char *text)
{
    bool named = names(text, v->worker) || names(text, v->server);
    bool late = newcomer || !v->state->all_joined;
    bool refused = late && (code == FLEET_EEXIST || code == FLEET_ESTATE);

    if (code != FLEET_EPEER && code != FLEET_ETIMEDOUT && !refused)
        return DIFFERS("%s %d: %s: %s", who, i, fleet_status_name(code), text);
    if (v->any_name || newcomer)
        named = strstr(text, "worker ") || strstr(text, "server ");
    return named ? NULL
                 : DIFFERS("%s %d does not name %s%s: %s", who, i, v->worker,
                           v->server, text);
}

/* The latest that a process may end. */
static int64_t latest_ms(const verdict *v, bool newcomer)
{
    const sim_options *o = &v->s->o;
    int64_t ms = v->state->begun_ms + o->peer_ms + o->request_ms + SLACK_MS;

    if (v->f->kind == SIM_SLEEPS)
        ms += v->f->ms;
    if (v->f->kind == SIM_STUCK)
        ms += o->step_ms + o->peer_ms;
    if (v->any_name || newcomer)
        ms += o->connect_ms + o->servers_ms + o->workers_ms +
              o->load_parts * o->load_ms; /* who has loaded waits then */
    if (v->s->all_lanes > v->s->n_lane)   /* the other copy is looked for */
        ms += 2 * FL_REPLICA_PATIENCE * o->peer_ms;
    return newcomer ? ms + v->f->ms : ms;
}

static const char *check_end(const verdict *v, const char *who, int i,
                             bool newcomer, int64_t ended_ms)
{
    int64_t latest = latest_ms(v, newcomer);

    return ended_ms <= latest
               ? NULL
               : DIFFERS("%s %d has ended at %" PRId64 ", not by %" PRId64, who,
                         i, ended_ms, latest);
}

static const char *judge_worker(const verdict *v, const sim_worker *w)
{
    bool newcomer = w->life > 1;
    const char *bad = NULL;

    if (w->phase == SIM_ABSENT ||
        (v->f->kind == SIM_STUCK && v->f->worker == w->index))
        return NULL;
    if (w->phase != SIM_ENDED)
        return DIFFERS("worker %d has not ended", w->index);
    if (w->status == FLEET_OK)
        return NULL;
    bad = check_end(v, "worker", w->index, newcomer, w->ended_ms);
    return bad ? bad
               : check_words(v, "worker", w->index, newcomer, w->status,
                             w->text);
}

static const char *judge_lane(const verdict *v, const sim_reference *r,
                              const sim_lane *l)
{
    const sim_server *server = &v->s->server[l->server];
    int64_t count[N_CHECKED] = {0};
    const fl_error *error;
    const char *bad;
    int n_block = 0;

    if (!l->core)
        return NULL;
    if (fl_lane_state_of(l->core) == FL_LANE_RUNS)
        return DIFFERS("lane %d has not ended", l->number);
    if (!leads(l))
        return NULL;
    if (fl_lane_state_of(l->core) == FL_LANE_LEFT)
        return check_state(r, l, &n_block, count);
    error = fl_lane_error(l->core);
    bad = check_end(v, "lane", l->number, server->life > 1, server->ended_ms);
    return bad ? bad
               : check_words(v, "lane", l->number, server->life > 1,
                             error->code, error->text);
}

/* Nobody waits for a worker that hangs. */
static bool is_missed(const verdict *v)
{
    bool missed = v->f->kind != SIM_STUCK;

    for (int i = 0; i < v->s->o.n_worker; i++)
        missed =
            missed || (i != v->f->worker && v->s->worker[i].status != FLEET_OK);
    return missed;
}

static const char *judge(const verdict *v, const sim_reference *r)
{
    const char *bad = NULL;

    for (int i = 0; i < v->s->o.n_worker && !bad; i++)
        bad = judge_worker(v, &v->s->worker[i]);
    if (!is_missed(v))
        return bad;
    for (int i = 0; i < v->s->all_lanes && !bad; i++)
        bad = judge_lane(v, r, &v->s->lane[i]);
    return bad;
}

const char *sim_check_fault(sim *s, const sim_script *k, bool fatal)
{
    sim_reference r;
    const char *bad;
    verdict v = make_verdict(s, 0);

    if (!fatal || !v.state->begun || sim_is_well(s))
        return sim_check(s, k);
    sim_reference_open(&r, s, k);
    bad = judge(&v, &r);
    sim_reference_close(&r);
    return bad;
}
