/* sim_feed.c - see sim_feed.h. */
#define SUITE sim_kit
#include "sim_feed.h"
#include "sim_reference.h"
#include "test.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ps/feed/feed_client.h"
#include "ps/feed/feed_offset.h"
#include "runtime/store/table.h"

enum { MOST_ROW = 64, MOST_WEIGHT = 2 * FL_BLOCK, MOST_NAP_MS = 20 };

typedef struct kept_row {
    uint64_t key, version;
    bool has;
    float value[SIM_MOST_DIM];
} kept_row;

typedef struct kept_param {
    char name[20];
    float value[MOST_WEIGHT];
} kept_param;

/* Its process has a client; the rest is what it has stored. */
typedef struct sim_subscriber {
    fl_feed_client *client; /* NULL: dead, or not there yet */
    uint32_t life;
    char *offset; /* NULL: of nothing */
    kept_row row[SIM_N_TABLE][MOST_ROW];
    int n_row[SIM_N_TABLE];
    kept_param param[SIM_MOST_PARAM];
    int n_param;
    bool over[SIM_MOST_LANE];
    int begins, rows, gone, again, deaths;
    char failure[500];
} sim_subscriber;

static const char *const tables[SIM_N_TABLE] = {"first", "second"};

/* --- what it does with a batch -------------------------------------------- */

static kept_row *row_of(sim_subscriber *b, int table, uint64_t key)
{
    int i = 0;

    while (i < b->n_row[table] && b->row[table][i].key != key)
        i++;
    CHECK(i < MOST_ROW);
    if (i == b->n_row[table])
        b->row[table][b->n_row[table]++] = (kept_row){.key = key};
    return &b->row[table][i];
}

static void take_rows(sim_subscriber *b, const fleet_feed_part *p)
{
    int table = strcmp(p->name, tables[0]) != 0;

    CHECK_TEXT(p->name, tables[table]);
    for (int64_t i = 0; i < p->n; i++) {
        kept_row *row = row_of(b, table, p->key[i]);

        if (p->kind == FLEET_FEED_GONE) {
            b->gone += row->has;
            row->has = false;
            continue;
        }
        b->again += row->has && p->version[i] <= row->version;
        b->rows++;
        row->has = true;
        row->version = p->version[i];
        memcpy(row->value, p->value + i * p->dim,
               (size_t)p->dim * sizeof *row->value);
    }
}

static void take_weights(sim_subscriber *b, const fleet_feed_part *p)
{
    int i = 0;

    while (i < b->n_param && strcmp(b->param[i].name, p->name) != 0)
        i++;
    CHECK(i < SIM_MOST_PARAM && p->first + p->n <= MOST_WEIGHT);
    if (i == b->n_param)
        snprintf(b->param[b->n_param++].name, sizeof b->param->name, "%s",
                 p->name);
    memcpy(b->param[i].value + p->first, p->value,
           (size_t)p->n * sizeof *p->value);
}

static bool is_of_lane(const sim *s, int lane, uint64_t key)
{
    return fl_bucket_set_has(&s->lane[lane].own, fl_bucket_of(fl_mix(key)));
}

static void forget_lane(const sim *s, sim_subscriber *b, int lane)
{
    for (int t = 0; t < SIM_N_TABLE; t++)
        for (int i = 0; i < b->n_row[t]; i++)
            if (is_of_lane(s, lane, b->row[t][i].key))
                b->row[t][i].has = false;
    b->begins++;
}

static void take_batch(const sim *s, sim_subscriber *b,
                       const fleet_feed_batch *batch)
{
    if (batch->begins)
        forget_lane(s, b, batch->lane);
    for (int i = 0; i < batch->n_part; i++) {
        if (batch->part[i].kind == FLEET_FEED_WEIGHTS)
            take_weights(b, &batch->part[i]);
        else
            take_rows(b, &batch->part[i]);
    }
    b->over[batch->lane] = batch->over;
}

/* --- its process ---------------------------------------------------------- */

static void post(sim *s, sim_event_kind kind, int64_t in_ms)
{
    const sim_subscriber *b = s->subscriber;

    sim_post(s, (sim_event){.at_ms = s->now_ms + in_ms,
                            .kind = kind,
                            .worker = SIM_SUBSCRIBER,
                            .life = b->life});
}

static void subscriber_sends(void *arg, int socket, fl_packet *p)
{
    sim *s = arg;
    bool joins = socket < s->o.n_server;
    int lane = joins ? socket * s->o.n_lane : socket - s->o.n_server;

    sim_carry(s,
              (sim_event){.kind = SIM_TO_LANE,
                          .worker = SIM_SUBSCRIBER,
                          .server = lane / s->o.n_lane,
                          .lane = lane,
                          .life = s->subscriber->life,
                          .joins = joins},
              p);
}

static fleet_status connect_lane(void *arg, int socket, const char *address,
                                 int server)
{
    const sim *s = arg;
    int lane = socket - s->o.n_server;
    char want[60];

    snprintf(want, sizeof want, "inproc://sim/%d/%d", server,
             lane % s->o.n_lane);
    CHECK_INT(lane / s->o.n_lane, server);
    CHECK_TEXT(address, want);
    return FLEET_OK;
}

static void comes(sim *s)
{
    sim_subscriber *b = s->subscriber;
    const fl_feed_host host = {s, subscriber_sends, connect_lane};
    const fl_feed_options o = {.address = (const fl_address *)s->address,
                               .n_server = s->o.n_server,
                               .job = "sim",
                               .incarnation = 1 + (uint32_t)b->life,
                               .peer_ms = s->o.peer_ms,
                               .interval_ms = 1 + (int64_t)sim_random(s, 50),
                               .locality = "sim",
                               .pool = s->pool};

    CHECK_OK(fl_feed_client_create(&b->client, &o, &host, s->now_ms));
    if (b->offset)
        CHECK_OK(fl_feed_offset_resume(b->client, b->offset));
    sim_say(s, "a subscriber comes", SIM_SUBSCRIBER, -1, NULL);
    post(s, SIM_FEED_TICK, 0);
}

static bool dies(sim *s)
{
    sim_subscriber *b = s->subscriber;

    if (b->deaths >= s->o.subscriber_deaths || sim_random(s, 3) > 0)
        return false;
    fl_feed_client_destroy(b->client);
    b->client = NULL;
    b->life++;
    b->deaths++;
    sim_say(s, "a subscriber dies", SIM_SUBSCRIBER, -1, NULL);
    post(s, SIM_FEED_COMES, 1 + (int64_t)sim_random(s, 300));
    return true;
}

/* All that has come is stored, each batch with the offset behind it, or not at
 * all. */
static bool store_batches(sim *s)
{
    sim_subscriber *b = s->subscriber;
    fleet_feed_batch batch;
    bool walked;

    while (fl_feed_client_next(b->client, &batch, &walked, s->now_ms)) {
        if (dies(s))
            return false;
        take_batch(s, b, &batch);
        fl_free(b->offset);
        b->offset = fl_feed_offset_text(b->client);
        CHECK(b->offset != NULL);
    }
    return true;
}

/* In how many ms again; -1: not at all. */
static int go_on(sim *s)
{
    sim_subscriber *b = s->subscriber;
    fleet_status status;
    int ms;

    if (!store_batches(s))
        return -1;
    ms = fl_feed_client_tick(b->client, s->now_ms);
    status = fl_feed_client_status(b->client, s->now_ms);
    if (status != FLEET_OK && status != FLEET_ETIMEDOUT) {
        snprintf(b->failure, sizeof b->failure, "%s", fleet_last_error());
        return -1;
    }
    return ms < 1 ? 1 : ms < MOST_NAP_MS ? ms : MOST_NAP_MS;
}

static void hear(sim *s, sim_event *e)
{
    int socket = e->joins ? e->server : s->o.n_server + e->lane;

    sim_say(s, "hears", SIM_SUBSCRIBER, e->lane, e->packet);
    if (!e->joins && fl_feed_client_lanes(s->subscriber->client) < 0)
        return; /* a socket of the process before */
    fl_feed_client_receive(s->subscriber->client, socket, e->packet, s->now_ms);
    go_on(s);
}

void sim_feed_event(sim *s, sim_event *e)
{
    sim_subscriber *b = s->subscriber;
    int ms;

    if (e->kind == SIM_TO_WORKER)
        sim_arrives(e->packet);
    if (e->life != b->life || *b->failure)
        return;
    if (e->kind == SIM_FEED_COMES)
        comes(s);
    else if (e->kind == SIM_TO_WORKER && b->client)
        hear(s, e);
    else if (e->kind == SIM_FEED_TICK && b->client) {
        ms = go_on(s);
        if (ms >= 0)
            post(s, SIM_FEED_TICK, ms);
    }
}

void sim_feed_open(sim *s)
{
    s->subscriber = calloc(1, sizeof *s->subscriber);
    CHECK(s->subscriber != NULL);
    post(s, SIM_FEED_COMES, (int64_t)sim_random(s, 200));
}

void sim_feed_close(sim *s)
{
    if (!s->subscriber)
        return;
    fl_feed_client_destroy(s->subscriber->client);
    fl_free(s->subscriber->offset);
    free(s->subscriber);
}

/* --- what it has ---------------------------------------------------------- */

static char difference[700];

#define DIFFERS(...)                                                           \
    (snprintf(difference, sizeof difference, __VA_ARGS__),                     \
     (const char *)difference)

typedef struct row_check {
    const sim_subscriber *b;
    int table, n_bad, n;
    size_t bytes;
} row_check;

static fleet_status check_row(void *arg, int bucket, uint64_t key,
                              const float *row)
{
    row_check *c = arg;
    int i = 0;

    (void)bucket;
    while (i < c->b->n_row[c->table] && c->b->row[c->table][i].key != key)
        i++;
    c->n_bad += i == c->b->n_row[c->table] || !c->b->row[c->table][i].has ||
                memcmp(c->b->row[c->table][i].value, row, c->bytes) != 0;
    c->n++;
    return FLEET_OK;
}

static const char *check_rows(const sim *s, const sim_lane *l, int table)
{
    const sim_subscriber *b = s->subscriber;
    const fl_rows *rows = fl_store_rows(l->store, tables[table]);
    row_check c = {
        .b = b, .table = table, .bytes = (size_t)rows->dim * sizeof(float)};
    int n = 0;

    CHECK_OK(rows->methods->each(rows, check_row, &c));
    for (int i = 0; i < b->n_row[table]; i++)
        n += b->row[table][i].has &&
             is_of_lane(s, l->number, b->row[table][i].key);
    if (c.n_bad > 0 || n != c.n)
        return DIFFERS("the subscriber has %d rows of \"%s\" of lane %d, which "
                       "has %d, and %d differ",
                       n, tables[table], l->number, c.n, c.n_bad);
    return NULL;
}

static bool has_block(const sim_subscriber *b, const fl_param *p, int64_t block)
{
    int64_t first = block * FL_BLOCK, left = p->n - first;
    int i = 0;

    while (i < b->n_param && strcmp(b->param[i].name, p->name) != 0)
        i++;
    return i < b->n_param &&
           memcmp(b->param[i].value + first,
                  p->flat->weight + fl_block_offset(p, block),
                  (size_t)(left < FL_BLOCK ? left : FL_BLOCK) *
                      sizeof(float)) == 0;
}

static const char *check_blocks(const sim *s, const sim_lane *l)
{
    const fl_map *params = &l->store->params;

    for (size_t i = 0; i < params->n; i++) {
        const fl_param *p = params->entry[i].value;

        for (int64_t j = 0; j < fl_blocks_of(p); j++)
            if (fl_block_offset(p, j) >= 0 && !has_block(s->subscriber, p, j))
                return DIFFERS("the subscriber does not have block %" PRId64
                               " of \"%s\" as lane %d has it",
                               j, p->name, l->number);
    }
    return NULL;
}

const char *sim_feed_check(const sim *s, sim_feed_counts *n)
{
    const sim_subscriber *b = s->subscriber;
    const char *bad = NULL;

    n->begins += b->begins;
    n->rows += b->rows;
    n->gone += b->gone;
    n->deaths += b->deaths;
    if (*b->failure)
        return DIFFERS("the subscriber: %s", b->failure);
    if (b->again > 0)
        return DIFFERS("%d changes were told again", b->again);
    for (int i = 0; i < s->n_lane && !bad; i++) {
        n->lanes++;
        n->over += b->over[i];
        for (int t = 0; b->over[i] && t < SIM_N_TABLE && !bad; t++)
            bad = check_rows(s, &s->lane[i], t);
        if (b->over[i] && !bad)
            bad = check_blocks(s, &s->lane[i]);
    }
    return bad;
}
