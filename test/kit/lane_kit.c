/* lane_kit.c - see lane_kit.h. */
#define SUITE lane_kit
#include "lane_kit.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "runtime/store/table.h"

uint32_t lane_run = LANE_RUN;
fl_journal_sink lane_journal;
int lane_live_hash;
int64_t lane_restart_ms;
int64_t lane_changes;
fl_replica_role lane_replica;
bool lane_comes_again;
const char *lane_no_move;

static int n_open; /* kits: they share models */
static int n_made; /* so far */

static void keep_sent(void *arg, const fl_peer *to, fl_packet *p)
{
    lane_kit *k = arg;

    CHECK(k->n_sent < LANE_MOST_SENT);
    k->sent[k->n_sent++] = (lane_sent){to->id[0], fl_packet_keep(p)};
}

static fleet_status keep_command(void *arg, const fl_lane_command *command)
{
    lane_kit *k = arg;

    if (k->fails_commands)
        return fl_fail(FLEET_ENOMEM, "no memory for a snapshot");
    k->n_command++;
    k->command = command->kind;
    snprintf(k->command_text, sizeof k->command_text, "%s",
             command->text ? command->text : "");
    k->beside_training = command->beside_training;
    for (int i = 0; command->done && i < LANE_MOST_CUT; i++)
        k->cut[i] = i < k->n_stream ? command->done[i] : 0;
    return FLEET_OK;
}

static uint64_t command_progress(void *arg)
{
    return ((lane_kit *)arg)->command_progress;
}

static bool server_loads(void *arg, uint64_t *bytes, uint64_t *total)
{
    const lane_kit *k = arg;

    *bytes = k->command_progress;
    *total = k->load_total;
    return k->loads;
}

static void keep_asked(void *arg, fl_packet *p)
{
    lane_kit *k = arg;

    fl_packet_drop(k->asked);
    k->asked = fl_packet_keep(p);
}

static fleet_status keep_copy(void *arg, fl_lane_copy *c)
{
    lane_kit *k = arg;

    if (k->fails_commands)
        return fl_fail(FLEET_ENOMEM, "no thread");
    k->copy = c;
    return FLEET_OK;
}

static void keep_line(void *user, fleet_log_level level, const char *line)
{
    lane_kit *k = user;
    size_t n = strlen(k->lines);

    (void)level;
    snprintf(k->lines + n, sizeof k->lines - n, "%s\n", line);
}

/* 0, NULL: what a server has. */
typedef struct lane_extras {
    size_t parked, unread;
    fl_rows_maker *make_rows;
    bool bounds_staleness;
    uint64_t staleness;
} lane_extras;

static void open_as(lane_kit *k, sim_kind kind, int n_stream, bool sync,
                    bool scaled, int server, lane_extras x)
{
    static const char *const address[] = {"{}"};
    static const int n_lane[] = {1, 1};
    fl_lane_options o = {.server = server,
                         .n_lane = 1,
                         .n_stream = n_stream,
                         .sync = sync,
                         .scaled = scaled,
                         .bounds_staleness = x.bounds_staleness,
                         .max_staleness = x.staleness,
                         .live_hash = lane_live_hash,
                         .job = "job",
                         .mode = "ps-sync",
                         .program = "program\n",
                         .address = address,
                         .connect_ms = 3000,
                         .peer_ms = 1000,
                         .step_ms = 5000,
                         .most_open = 4000,
                         .most_parked = x.parked,
                         .most_unread = x.unread,
                         .most_small = x.unread / 16};
    const fl_lane_host host = {.arg = k,
                               .send = keep_sent,
                               .begin = keep_command,
                               .progress = command_progress,
                               .loading = server_loads,
                               .ask = keep_asked,
                               .copy = keep_copy};

    memset(k, 0, sizeof *k);
    k->n_stream = n_stream;
    n_open++;
    CHECK_OK(fl_packet_pool_create(&k->pool, 1 << 20));
    k->store = sim_store(sim_model_of(kind),
                         x.make_rows ? x.make_rows : fl_table_make);
    CHECK_OK(fl_partition_make(&k->layout, k->store, server + 1));
    k->identity = (fl_server_identity){.nonce = LANE_NONCE,
                                       .run = server == 0 ? LANE_RUN : 0};
    o.identity = &k->identity;
    o.pool = k->pool;
    o.journal = lane_journal;
    o.restart_ms = lane_restart_ms;
    o.most_changes = lane_changes;
    o.replica = lane_replica;
    o.comes_again = lane_comes_again;
    o.no_move = lane_no_move;
    o.process = (uint32_t)++n_made;
    o.most_copy = SIZE_MAX;
    fl_log_init(&k->log, keep_line, k, FLEET_LOG_INFO);
    o.log = &k->log;
    o.layout = &k->layout;
    fl_bucket_map_begin(&k->map, server + 1, n_lane);
    o.map = &k->map;
    CHECK_OK(fl_lane_create(&k->lane, &o, &host, 0));
}

void lane_open(lane_kit *k, sim_kind kind, int n_stream, bool sync)
{
    open_as(k, kind, n_stream, sync, false, 0, (lane_extras){0});
}

void lane_open_small(lane_kit *k, int n_stream, bool sync, size_t most_parked,
                     size_t most_unread)
{
    open_as(k, SIM_SGD, n_stream, sync, false, 0,
            (lane_extras){.parked = most_parked, .unread = most_unread});
}

void lane_open_rows(lane_kit *k, sim_kind kind, int n_stream, bool sync,
                    fl_rows_maker *make_rows)
{
    open_as(k, kind, n_stream, sync, false, 0,
            (lane_extras){.make_rows = make_rows});
}

void lane_open_small_rows(lane_kit *k, int n_stream, bool sync,
                          size_t most_parked, size_t most_unread,
                          fl_rows_maker *make_rows)
{
    open_as(k, SIM_SGD, n_stream, sync, false, 0,
            (lane_extras){.parked = most_parked,
                          .unread = most_unread,
                          .make_rows = make_rows});
}

void lane_open_bounded(lane_kit *k, int n_stream, uint64_t max_staleness)
{
    open_as(k, SIM_SGD, n_stream, false, false, 0,
            (lane_extras){.parked = 3 * 5000,
                          .bounds_staleness = true,
                          .staleness = max_staleness});
}

void lane_open_second(lane_kit *k)
{
    open_as(k, SIM_SGD, 1, true, false, 1, (lane_extras){0});
}

void lane_open_scaled(lane_kit *k, sim_kind kind, int n_stream, bool sync)
{
    open_as(k, kind, n_stream, sync, true, 0, (lane_extras){0});
}

void lane_close(lane_kit *k)
{
    for (int i = 0; i < k->n_sent; i++)
        fl_packet_drop(k->sent[i].packet);
    fl_packet_drop(k->heard);
    fl_packet_drop(k->asked);
    fl_lane_destroy(k->lane);
    fl_partition_done(&k->layout);
    fl_store_destroy(k->store);
    fl_packet_pool_destroy(k->pool);
    if (--n_open == 0)
        sim_models_close();
}

/* --- told ----------------------------------------------------------------- */

fl_msg_head lane_head(fl_msg_kind kind, uint32_t stream, uint64_t step,
                      uint16_t flags)
{
    static uint64_t request;

    return (fl_msg_head){.version = FL_MSG_VERSION,
                         .kind = (uint8_t)kind,
                         .flags = flags,
                         .job = fl_msg_job("job", lane_run),
                         .peer = LANE_NONCE,
                         .stream = stream,
                         .incarnation = 1,
                         .step = step,
                         .request = ++request};
}

void lane_begin(lane_kit *k, fl_msg_writer *w, const fl_msg_head *head)
{
    fl_msg_begin(w, k->pool, head);
}

void lane_tell(lane_kit *k, fl_msg_writer *w, int from)
{
    const fl_peer peer = {.size = 1, .id = {(uint8_t)from}};
    fl_packet *p;

    CHECK_OK(fl_msg_end(w, false, &p));
    fl_lane_receive(k->lane, &peer, p, k->now_ms);
    fl_packet_drop(p);
}

void lane_say(lane_kit *k, fl_msg_kind kind, uint32_t stream, uint64_t step,
              uint16_t flags)
{
    fl_msg_head head = lane_head(kind, stream, step, flags);
    fl_msg_writer w;

    lane_begin(k, &w, &head);
    lane_tell(k, &w, (int)stream);
}

void lane_close_step(fl_msg_writer *w, uint32_t n_batch,
                     const fl_update_settings *settings)
{
    fl_section *s = fl_msg_section(w, FL_SECTION_CLIP, 0);

    s->n_batch = n_batch;
    s->learning_rate = 1;
    memcpy(fl_msg_column(w, FL_COLUMN_VALUES, sizeof *settings), settings,
           sizeof *settings);
}

static void push_one(lane_kit *k, uint32_t incarnation, uint32_t stream,
                     uint64_t step, uint64_t key, uint32_t n_batch,
                     const fl_update_settings *settings)
{
    fl_msg_head head = lane_head(FL_MSG_STEP, stream, step, FL_MSG_END_OF_STEP);
    int64_t dim = k->layout.table[0]->dim;
    fl_msg_writer w;
    fl_section *s;
    float *g;

    head.incarnation = incarnation;
    lane_begin(k, &w, &head);
    s = fl_msg_section(&w, FL_SECTION_ROWS, 0);
    s->n_key = 1;
    memcpy(fl_msg_column(&w, FL_COLUMN_KEYS, 8), &key, 8);
    g = fl_msg_column(&w, FL_COLUMN_VALUES, (size_t)dim * sizeof *g);
    for (int64_t i = 0; i < dim; i++)
        g[i] = 1;
    lane_close_step(&w, n_batch, settings);
    lane_tell(k, &w, (int)stream);
}

void lane_push_as(lane_kit *k, uint32_t incarnation, uint32_t stream,
                  uint64_t step, uint64_t key, uint32_t n_batch)
{
    const fl_update_settings settings = {.learning_rate = 0.25f};

    push_one(k, incarnation, stream, step, key, n_batch, &settings);
}

void lane_push_rows(lane_kit *k, uint32_t stream, uint64_t step,
                    const uint64_t *key, uint32_t n, float g)
{
    fl_msg_head head = lane_head(FL_MSG_STEP, stream, step, FL_MSG_END_OF_STEP);
    const fl_update_settings settings = {.learning_rate = 0.25f};
    int64_t floats = (int64_t)n * k->layout.table[0]->dim;
    fl_msg_writer w;
    float *values;

    lane_begin(k, &w, &head);
    fl_msg_section(&w, FL_SECTION_ROWS, 0)->n_key = n;
    memcpy(fl_msg_column(&w, FL_COLUMN_KEYS, n * sizeof *key), key,
           n * sizeof *key);
    values =
        fl_msg_column(&w, FL_COLUMN_VALUES, (size_t)floats * sizeof *values);
    for (int64_t i = 0; i < floats; i++)
        values[i] = g + (float)(i % 5);
    lane_close_step(&w, 1, &settings);
    lane_tell(k, &w, (int)stream);
}

void lane_push_with(lane_kit *k, uint32_t stream, uint64_t step, uint64_t key,
                    const fl_update_settings *settings)
{
    push_one(k, 1, stream, step, key, 1, settings);
}

void lane_push(lane_kit *k, uint32_t stream, uint64_t step, uint64_t key,
               uint32_t n_batch)
{
    lane_push_as(k, 1, stream, step, key, n_batch);
}

static void tell_command(lane_kit *k, uint32_t stream, uint64_t step,
                         fl_section_op op, const char *text)
{
    fl_msg_head head = lane_head(FL_MSG_STEP, stream, step,
                                 FL_MSG_COMMAND | FL_MSG_END_OF_STEP);
    fl_msg_writer w;

    lane_begin(k, &w, &head);
    fl_msg_text(&w, op, text);
    lane_tell(k, &w, (int)stream);
}

void lane_command(lane_kit *k, uint32_t stream, uint64_t step, const char *text)
{
    tell_command(k, stream, step, FL_SECTION_SAVE, text);
}

void lane_load(lane_kit *k, uint32_t stream, uint64_t step, const char *path)
{
    tell_command(k, stream, step, FL_SECTION_LOAD, path);
}

void lane_write(lane_kit *k, uint32_t stream, uint64_t step, const char *text)
{
    tell_command(k, stream, step, FL_SECTION_WRITE, text);
}

void lane_read(lane_kit *k, uint32_t stream, const char *text)
{
    fl_msg_head head = lane_head(FL_MSG_QUERY, stream, 0, 0);
    fl_msg_writer w;

    lane_begin(k, &w, &head);
    fl_msg_text(&w, FL_SECTION_READ, text);
    lane_tell(k, &w, (int)stream);
}

void lane_numbers(lane_kit *k, uint32_t stream, uint64_t number, int how,
                  const double *x, int n)
{
    fl_msg_head head = lane_head(FL_MSG_REDUCE, stream, number, 0);
    size_t bytes = (size_t)n * sizeof *x;
    fl_msg_writer w;
    void *to;

    lane_begin(k, &w, &head);
    fl_msg_section(&w, FL_SECTION_REDUCE, (uint32_t)how);
    to = fl_msg_column(&w, FL_COLUMN_VALUES, bytes);
    if (n > 0)
        memcpy(to, x, bytes);
    lane_tell(k, &w, (int)stream);
}

void lane_lease(lane_kit *k, uint32_t stream, uint64_t sums,
                const fl_lease_question *q)
{
    fl_msg_head head = lane_head(FL_MSG_LEASE, stream, sums, 0);
    fl_msg_writer w;

    lane_begin(k, &w, &head);
    fl_msg_section(&w, FL_SECTION_LEASE, 0);
    memcpy(fl_msg_column(&w, FL_COLUMN_BYTES, sizeof *q), q, sizeof *q);
    lane_tell(k, &w, (int)stream);
}

static void pull_rows(lane_kit *k, const fl_msg_head *head, uint64_t version,
                      uint32_t n)
{
    fl_msg_writer w;
    fl_section *s;
    uint64_t *key;

    lane_begin(k, &w, head);
    s = fl_msg_section(&w, FL_SECTION_ROWS, 0);
    s->n_key = n;
    s->version = version;
    key = fl_msg_column(&w, FL_COLUMN_KEYS, n * sizeof *key);
    for (uint32_t i = 0; i < n; i++)
        key[i] = i;
    lane_tell(k, &w, (int)head->stream);
}

void lane_pull(lane_kit *k, uint32_t stream, uint64_t version, uint32_t n)
{
    fl_msg_head head = lane_head(FL_MSG_PULL, stream, 0, 0);

    pull_rows(k, &head, version, n);
}

void lane_pull_for(lane_kit *k, uint32_t stream, uint64_t push)
{
    fl_msg_head head = lane_head(FL_MSG_PULL, stream, push, 0);

    pull_rows(k, &head, 0, 1);
}

void lane_tick_until(lane_kit *k, int64_t now_ms)
{
    while (k->now_ms < now_ms) {
        k->now_ms = k->now_ms + 100 < now_ms ? k->now_ms + 100 : now_ms;
        fl_lane_tick(k->lane, k->now_ms);
    }
}

/* --- heard ---------------------------------------------------------------- */

const fl_msg *lane_hear(lane_kit *k, int to)
{
    CHECK(k->n_sent > 0);
    CHECK_INT(k->sent[0].to, to);
    CHECK_OK(fl_msg_decode(k->sent[0].packet, &k->msg));
    fl_packet_drop(k->heard);
    k->heard = k->sent[0].packet;
    k->n_sent--;
    memmove(k->sent, k->sent + 1, (size_t)k->n_sent * sizeof *k->sent);
    return &k->msg;
}

void lane_silent(const lane_kit *k)
{
    CHECK_INT(k->n_sent, 0);
}

void lane_hear_status(lane_kit *k, int to, fl_msg_status status)
{
    const fl_msg *msg = lane_hear(k, to);

    CHECK_INT(msg->head.kind, FL_MSG_ANSWER);
    CHECK_INT(msg->head.status, status);
}

void lane_hear_refusal(lane_kit *k, int to, const char *words)
{
    char *text;

    lane_hear_status(k, to, FL_ANSWER_REFUSED);
    text = fl_msg_get_text(&k->msg, FL_SECTION_TEXT);
    CHECK(text != NULL);
    CHECK_CONTAINS(text, words);
    fl_free(text);
}
