/* lane_journal_test.c - a lane writes down what it is about to apply, and is
 * made again from that: with the same weights, states and steps, to the bit. */
#define SUITE lane_journal
#include "lane_kit.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "base/memory.h"
#include "ps/journal/journal_reader.h"
#include "ps/journal/journal_writer.h"
#include "runtime/life/evict.h"
#include "runtime/store/live_hash.h"
#include "runtime/store/table.h"

/* --- a journal in memory -------------------------------------------------- */

typedef struct memory_record {
    uint16_t kind;
    char *data;
    size_t size;
} memory_record;

typedef struct memory_journal {
    memory_record *at;
    size_t n, committed, capacity;
    int n_commit;
    int fail_put, fail_commit; /* the n-th from now; 0: none */
} memory_journal;

static fleet_status memory_put(void *arg, uint16_t kind,
                               const fl_journal_part *part, size_t n)
{
    memory_journal *j = arg;
    memory_record r = {.kind = kind};

    if (j->fail_put > 0 && --j->fail_put == 0)
        return fl_fail(FLEET_EIO, "the log cannot be written: it is full");
    for (size_t i = 0; i < n; i++)
        r.size += part[i].size;
    r.data = fl_alloc(r.size + 1);
    for (size_t i = 0, at = 0; i < n; at += part[i++].size)
        if (part[i].size > 0)
            memcpy(r.data + at, part[i].data, part[i].size);
    CHECK_OK(fl_grow(&j->at, &j->capacity, j->n + 1, sizeof *j->at));
    j->at[j->n++] = r;
    return FLEET_OK;
}

static fleet_status memory_commit(void *arg)
{
    memory_journal *j = arg;

    if (j->fail_commit > 0 && --j->fail_commit == 0)
        return fl_fail(FLEET_EIO, "the log cannot be flushed");
    j->n_commit++;
    j->committed = j->n;
    return FLEET_OK;
}

static memory_journal journal;

static void open_journal(void)
{
    lane_journal = (fl_journal_sink){&journal, memory_put, memory_commit};
}

static void close_journal(void)
{
    lane_journal = (fl_journal_sink){0};
    for (size_t i = 0; i < journal.n; i++)
        fl_free(journal.at[i].data);
    fl_free(journal.at);
    journal = (memory_journal){0};
}

static int count_records(fl_lane_record_kind kind)
{
    int n = 0;

    for (size_t i = 0; i < journal.n; i++)
        n += journal.at[i].kind == kind;
    return n;
}

/* --- what a lane is ------------------------------------------------------- */

typedef struct row_hash {
    const fl_rows *rows;
    uint64_t sum;
} row_hash;

static fleet_status add_row(void *arg, int bucket, uint64_t key,
                            const float *row)
{
    row_hash *h = arg;
    const fl_row_head *head = fl_row_of((float *)(uintptr_t)row);
    uint64_t sum =
        fl_hash(row, (size_t)fl_rows_record(h->rows) * sizeof *row, key);

    (void)bucket;
    h->sum += fl_mix(sum + fl_mix(head->step) + head->changed_at * 31);
    return FLEET_OK;
}

/* All weights and states. */
static uint64_t store_hash(const fl_store *s)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < s->tables.n; i++) {
        row_hash h = {.rows = s->tables.entry[i].value};

        CHECK_OK(h.rows->methods->each(h.rows, add_row, &h));
        sum = fl_mix(sum + h.sum);
    }
    for (const fl_flat *f = s->flats; f; f = f->next) {
        size_t size = (size_t)f->n * sizeof *f->weight;

        sum = fl_mix(sum + fl_hash(f->weight, size, 1));
        for (int i = 0; i < FL_MAX_STATE; i++)
            if (f->state[i])
                sum = fl_mix(sum + fl_hash(f->state[i], size, 2));
    }
    return sum;
}

/* What lives of keys know besides tables. */
typedef struct known_lives {
    fl_life of[4]; /* by table; without a life: zeros */
} known_lives;

static known_lives lives_of(const lane_kit *k)
{
    known_lives lives = {0};

    for (size_t i = 0; i < k->store->tables.n; i++) {
        const fl_life *one = ((fl_rows *)k->store->tables.entry[i].value)->life;

        if (one)
            lives.of[i] = *one;
    }
    return lives;
}

static void check_lives(const known_lives *a, const lane_kit *b)
{
    const known_lives now = lives_of(b);

    for (size_t i = 0; i < b->store->tables.n; i++) {
        const fl_life *x = &a->of[i], *y = &now.of[i];

        CHECK_INT(y->emptied_at, x->emptied_at);
        CHECK_INT(y->loaded_at, x->loaded_at);
        CHECK_INT(y->n_mark, x->n_mark);
        CHECK(memcmp(y->mark, x->mark, (size_t)x->n_mark * sizeof *x->mark) ==
              0);
    }
}

static void check_leases(const fl_lease_queue *a, const fl_lease_queue *b)
{
    CHECK((a->list != NULL) == (b->list != NULL));
    CHECK_INT(b->next, a->next);
    CHECK_INT(b->sums, a->sums);
    CHECK(memcmp(&a->pass, &b->pass, sizeof a->pass) == 0);
    for (int i = 0; a->list && i < a->n_worker; i++) {
        CHECK_INT(b->list[i].n, a->list[i].n);
        CHECK(a->list[i].n == 0 ||
              memcmp(a->list[i].at, b->list[i].at,
                     a->list[i].n * sizeof *a->list[i].at) == 0);
    }
    CHECK((a->before != NULL) == (b->before != NULL));
    if (a->before)
        check_leases(a->before, b->before);
}

static void check_same_but_life(const lane_kit *a, const lane_kit *b)
{
    const fl_ps_lane *x = a->lane, *y = b->lane;
    const known_lives lives = lives_of(a);

    check_lives(&lives, b);
    CHECK(store_hash(a->store) == store_hash(b->store));
    CHECK_INT(y->version, x->version);
    CHECK_INT(b->store->updates, a->store->updates);
    CHECK_INT(y->run, x->run);
    CHECK(memcmp(&x->last_clip, &y->last_clip, sizeof x->last_clip) == 0);
    CHECK_INT(y->n_reduced, x->n_reduced);
    CHECK(x->n_reduced == 0 ||
          memcmp(x->reduced, y->reduced,
                 (size_t)x->n_reduced * sizeof *x->reduced) == 0);
    check_leases(&x->leases, &y->leases);
    for (int i = 0; i < a->n_stream; i++) {
        const fl_stream_state *s = &x->stream[i], *t = &y->stream[i];

        CHECK_INT(t->done, s->done);
        CHECK_INT(t->reduced, s->reduced);
        CHECK_INT(t->left, s->left);
        CHECK_INT(t->no_log, s->no_log);
        CHECK_INT(t->nonce, s->nonce);
        CHECK_TEXT(t->who, s->who);
        CHECK_INT(t->command_step, s->command_step);
        CHECK_INT(t->command_status, s->command_status);
        CHECK((t->command_text == NULL) == (s->command_text == NULL));
        if (s->command_text)
            CHECK_TEXT(t->command_text, s->command_text);
    }
}

static void check_same(const lane_kit *a, const lane_kit *b)
{
    check_same_but_life(a, b);
    CHECK_INT(b->lane->aggregate.life, a->lane->aggregate.life);
}

/* A load as lives see it; a write is a shrink, 3 s an update. */
static void obey_lives(lane_kit *k)
{
    int64_t updates = k->store->updates;

    for (size_t i = 0; i < k->store->tables.n; i++) {
        fl_rows *r = k->store->tables.entry[i].value;

        if (r->life && k->command == FL_COMMAND_LOAD)
            r->life->loaded_at = (uint64_t)updates;
        else if (r->life)
            CHECK_OK(fl_life_shrink(r, (uint64_t)updates, 3 * updates));
    }
}

/* A load or a write, as these tests have it: a row is what the text says. */
static void obey(lane_kit *k)
{
    uint64_t key = fl_hash(k->command_text, strlen(k->command_text), 0) % 50;
    fl_rows *rows = k->layout.table[0];
    float *row;

    CHECK_OK(rows->methods->make(rows, &key, 1, &row));
    fl_live_hash_out(rows, &key, &row, 1);
    for (int64_t i = 0; i < rows->dim; i++)
        row[i] = (float)(strlen(k->command_text) + (size_t)i);
    fl_live_hash_in(rows, &key, &row, 1);
    obey_lives(k);
}

static void end_command(lane_kit *k, fleet_status status)
{
    if (k->command != FL_COMMAND_SAVE)
        obey(k);
    fl_lane_command_done(k->lane, status,
                         status == FLEET_OK ? NULL : "there is no room", 0, 0,
                         k->now_ms);
}

static fleet_status replay_record(lane_kit *k, const memory_record *m, size_t i)
{
    const fl_journal_record r = {
        .lsn = i + 1, .kind = m->kind, .size = m->size, .data = m->data};
    fleet_status status = fl_lane_replay(k->lane, &r, k->now_ms);

    if (status == FLEET_OK && fl_lane_replay_waits(k->lane))
        end_command(k, k->lane->replay_status);
    return status;
}

static fleet_status replay_one(lane_kit *k, size_t i)
{
    return replay_record(k, &journal.at[i], i);
}

static void replay_all(lane_kit *k)
{
    fl_lane_begin_replay(k->lane, k->now_ms);
    for (size_t i = 0; i < journal.committed; i++)
        CHECK_OK(replay_one(k, i));
    fl_lane_end_replay(k->lane, FLEET_OK, NULL, k->now_ms);
    CHECK_INT(fl_lane_state_of(k->lane), FL_LANE_RUNS);
}

/* --- workers that do anything --------------------------------------------- */

typedef struct random_worker {
    uint64_t step, sum; /* done */
    bool ended, left;
} random_worker;

typedef struct random_job {
    lane_kit *k;
    uint64_t seed, drawn;
    bool sync;
    int n;
    random_worker worker[4];
} random_job;

static uint64_t draw(random_job *j, uint64_t n)
{
    return fl_mix(j->seed * 1000003 + ++j->drawn) % n;
}

/* Everything that was said is durable by then. */
static void drain(lane_kit *k)
{
    CHECK_INT(journal.committed, journal.n);
    for (int i = 0; i < k->n_sent; i++)
        fl_packet_drop(k->sent[i].packet);
    k->n_sent = 0;
}

static void put_floats(random_job *j, fl_msg_writer *w, int64_t n)
{
    float *g = fl_msg_column(w, FL_COLUMN_VALUES, (size_t)n * sizeof *g);

    for (int64_t i = 0; i < n; i++)
        g[i] = (float)draw(j, 2001) / 1000 - 1;
}

/* Tables of counts have numbers, too, and get no gradients. */
static void put_rows(random_job *j, fl_msg_writer *w, const char *name,
                     uint64_t base)
{
    int table = fl_partition_table(&j->k->layout, name);
    uint32_t n = (uint32_t)draw(j, 6);
    fl_section *s = fl_msg_section(w, FL_SECTION_ROWS, (uint32_t)table);
    uint64_t *key;

    s->n_key = n;
    key = fl_msg_column(w, FL_COLUMN_KEYS, n * sizeof *key);
    for (uint32_t i = 0; i < n; i++)
        key[i] = base + 7 * i + draw(j, 7);
    put_floats(j, w, n * fl_rows_pushed(j->k->layout.table[table]));
}

static void put_block(random_job *j, fl_msg_writer *w)
{
    const fl_partition *l = &j->k->layout;
    uint64_t param, *key;

    if (l->n_param == 0)
        return;
    param = draw(j, (uint64_t)l->n_param);
    if (l->param[param]->n > 500)
        return; /* more than this lane takes of a step */
    fl_msg_section(w, FL_SECTION_DENSE, 0)->n_key = 1;
    key = fl_msg_column(w, FL_COLUMN_KEYS, sizeof *key);
    *key = fl_block_key((int)param, 0);
    put_floats(j, w, l->param[param]->n);
}

static void push(random_job *j, int i, uint64_t step)
{
    const fl_update_settings settings = {
        .learning_rate = 0.5f / (float)(1 + j->k->lane->version % 7)};
    int pieces = 1 + (int)draw(j, 3);

    for (int p = 0; p < pieces; p++) {
        fl_msg_head head = lane_head(FL_MSG_STEP, (uint32_t)i, step,
                                     p + 1 == pieces ? FL_MSG_END_OF_STEP : 0);
        fl_msg_writer w;

        head.piece = (uint16_t)p;
        lane_begin(j->k, &w, &head);
        if (p == 0)
            put_block(j, &w);
        put_rows(j, &w, "first", (uint64_t)p * 100);
        put_rows(j, &w, "second", (uint64_t)p * 100);
        if (p + 1 == pieces)
            lane_close_step(&w, 1 + (uint32_t)draw(j, 3), &settings);
        lane_tell(j->k, &w, i);
    }
}

/* Any worker that clips says with what. */
static void clip(random_job *j)
{
    for (int i = 0; i < j->n && j->k->lane->norming; i++) {
        fl_msg_head head = lane_head(FL_MSG_CLIP, (uint32_t)i,
                                     j->k->lane->stream[i].done + 1, 0);
        fl_msg_writer w;

        if (!fl_contributes(&j->k->lane->stream[i]))
            continue;
        lane_begin(j->k, &w, &head);
        fl_msg_section(&w, FL_SECTION_CLIP, 0)->learning_rate =
            (float)draw(j, 1000) / 1000;
        lane_tell(j->k, &w, i);
    }
}

static void command(random_job *j, int i, uint64_t step)
{
    char text[40];

    snprintf(text, sizeof text, "do %llu",
             (unsigned long long)draw(j, 1000000));
    switch (draw(j, 3)) {
    case 0:
        lane_command(j->k, (uint32_t)i, step, text);
        break;
    case 1:
        lane_load(j->k, (uint32_t)i, step, text);
        break;
    default:
        lane_write(j->k, (uint32_t)i, step, text);
    }
}

/* The next one, or once more one that it has had. Where the workers have made
 * as many sums a new pass may begin. */
static void lease(random_job *j, int i)
{
    const fl_lease_queue *q = &j->k->lane->leases;
    const fl_stream_state *s = &j->k->lane->stream[i];
    uint64_t had = q->list ? q->list[i].n : 0;
    fl_lease_question ask = {
        .pass = {.pass = q->pass.pass, .dataset = 1, .batches = 4},
        .number = had > 0 && draw(j, 3) == 0 ? draw(j, had) : had};

    if (j->sync)
        return;
    if (q->list && s->reduced > q->sums && draw(j, 2)) {
        ask.pass.pass++;
        ask.number = 0;
    }
    lane_lease(j->k, (uint32_t)i, s->reduced, &ask);
}

static void act(random_job *j, int i)
{
    const fl_stream_state *s = &j->k->lane->stream[i];
    random_worker *w = &j->worker[i];
    uint64_t luck = draw(j, 40), step = s->done + 1;
    double x[2] = {(double)draw(j, 100), 0.1};

    if (s->complete) /* said once more */
        lane_say(j->k, FL_MSG_HEARTBEAT, (uint32_t)i, 0, 0);
    else if (luck == 0)
        lane_say(j->k, FL_MSG_STEP, (uint32_t)i, step,
                 FL_MSG_PASS_END | FL_MSG_END_OF_STEP);
    else if (luck == 1 && i == 0)
        command(j, i, step);
    else if (luck < 4 && !s->reducing)
        lane_numbers(j->k, (uint32_t)i, s->reduced + 1, FL_REDUCTION_MAX, x, 2);
    else if (luck > 30 && luck < 35)
        lease(j, i);
    else if (luck == 5 && step > 1)
        push(j, i, step - 1); /* a copy */
    else
        push(j, i, step);
    w->step = s->done;
}

static void act_all(random_job *j)
{
    for (int i = 0; i < j->n; i++) {
        act(j, i);
        clip(j);
        if (j->k->lane->busy || j->k->lane->saving)
            end_command(j->k, draw(j, 4)                          ? FLEET_OK
                              : j->k->command == FL_COMMAND_WRITE ? FLEET_EINVAL
                                                                  : FLEET_EIO);
        drain(j->k);
    }
    j->k->now_ms++;
}

/* Enough that many records have been written. */
static void train(random_job *j, size_t records)
{
    while (journal.n < records)
        act_all(j);
    CHECK_INT(fl_lane_state_of(j->k->lane), FL_LANE_RUNS);
}

static void live_and_replay(sim_kind kind, int n, bool sync, size_t records)
{
    lane_kit live, again;
    random_job j = {.k = &live,
                    .seed = (uint64_t)kind * 10 + (uint64_t)n + sync,
                    .sync = sync,
                    .n = n};

    open_journal();
    lane_live_hash = n; /* kept, and compared with each record */
    lane_open(&live, kind, n, sync);
    train(&j, records);
    lane_journal = (fl_journal_sink){0};
    lane_open(&again, kind, n, sync);
    replay_all(&again);
    check_same(&live, &again);
    CHECK(count_records(FL_LANE_RECORD_UPDATE) > (int)records / 2);
    CHECK(count_records(FL_LANE_RECORD_COMMAND) > 2);
    CHECK(count_records(FL_LANE_RECORD_PASS) > 2);
    CHECK(count_records(FL_LANE_RECORD_REDUCED) > 2);
    for (int i = 0; i < live.layout.n_table; i++)
        CHECK_OK(fl_live_hash_check(live.layout.table[i]));
    lane_live_hash = 0;
    lane_close(&live);
    lane_close(&again);
    close_journal();
}

TEST(a_lane_in_sync_is_made_again_to_the_bit)
{
    live_and_replay(SIM_ADAM_CLIP, 3, true, 3000);
    live_and_replay(SIM_SGD, 2, true, 1000);
    live_and_replay(SIM_ADAGRAD, 1, true, 1000);
    live_and_replay(SIM_BLOCKS, 3, true, 1000);
    live_and_replay(SIM_LIVES, 3, true, 1000);
}

TEST(a_lane_in_async_is_made_again_to_the_bit)
{
    live_and_replay(SIM_ADAM, 4, false, 2000);
    live_and_replay(SIM_SGD, 1, false, 1000);
    live_and_replay(SIM_ADAGRAD, 3, false, 1000);
    live_and_replay(SIM_NO_DENSE, 2, false, 1000);
    live_and_replay(SIM_LIVES, 2, false, 1000);
}

/* --- in files ------------------------------------------------------------- */

static fl_journal_writer *files;

static fleet_status file_put(void *arg, uint16_t kind,
                             const fl_journal_part *part, size_t n)
{
    memory_journal *j = arg;

    j->n++;
    return fl_journal_put(files, kind, part, n);
}

static fleet_status file_commit(void *arg)
{
    memory_journal *j = arg;

    j->committed = j->n;
    return fl_journal_commit(files);
}

static void replay_files(lane_kit *again, const char *folder, size_t records)
{
    fl_journal_reader *from;
    fl_journal_record r;
    bool more = true;

    fl_lane_begin_replay(again->lane, again->now_ms);
    CHECK_OK(fl_journal_reader_open(&from, folder));
    for (size_t i = 0;; i++) {
        CHECK_OK(fl_journal_next(from, &r, &more));
        if (!more) {
            CHECK_INT(i, records);
            break;
        }
        CHECK_OK(
            replay_record(again,
                          &(memory_record){.kind = r.kind,
                                           .data = (char *)(uintptr_t)r.data,
                                           .size = r.size},
                          i));
    }
    fl_journal_reader_close(from);
    fl_lane_end_replay(again->lane, FLEET_OK, NULL, again->now_ms);
}

/* A thousand records, in make test-long 100,000. */
TEST_LIMIT(a_lane_is_made_again_from_many_files_to_the_bit, 3600)
{
    const char *more = getenv("FLEET_SIM_SEEDS"), *folder = test_path("files");
    size_t records = 1000 * (size_t)(more ? atoi(more) : 1);
    lane_kit live, again;
    random_job j = {.k = &live, .seed = 77, .sync = true, .n = 3};

    CHECK(mkdir(folder, 0755) == 0);
    CHECK_OK(fl_journal_writer_create(
        &files, &(fl_journal_options){.folder = folder,
                                      .text = "{}",
                                      .first_file = 1,
                                      .first_lsn = 1,
                                      .roll_bytes = 64 << 10}));
    lane_journal = (fl_journal_sink){&journal, file_put, file_commit};
    lane_open(&live, SIM_ADAM, 3, true);
    train(&j, records);
    lane_journal = (fl_journal_sink){0};
    lane_open(&again, SIM_ADAM, 3, true);
    replay_files(&again, folder, journal.n);
    check_same(&live, &again);
    lane_close(&live);
    lane_close(&again);
    fl_journal_writer_destroy(files);
    journal = (memory_journal){0};
}

/* --- a snapshot, and what was done behind it ------------------------------ */

static void forget_journal(memory_journal *j)
{
    for (size_t i = 0; i < j->n; i++)
        fl_free(j->at[i].data);
    fl_free(j->at);
    *j = (memory_journal){0};
}

/* The snapshot is written when the lane has gone on: what it says is what the
 * lane was before, and commands that came meanwhile are behind it. */
static void live_and_restore(sim_kind kind, int n, bool sync)
{
    memory_journal cut = {0};
    const fl_journal_sink to = {&cut, memory_put, memory_commit};
    lane_kit live, again;
    random_job j = {.k = &live,
                    .seed = (uint64_t)kind * 10 + (uint64_t)n + sync + 7,
                    .sync = sync,
                    .n = n};
    known_lives lives;
    size_t first;

    open_journal();
    lane_open(&live, kind, n, sync);
    train(&j, 400);
    CHECK(fl_lane_may_freeze(live.lane));
    live.lane->stream[n - 1].no_log = true;
    lives = lives_of(&live);
    CHECK_OK(fl_lane_freeze(live.lane, &to));
    CHECK(!fl_lane_may_freeze(live.lane));
    first = journal.n;
    for (int i = 0; i < 40; i++)
        act_all(&j);
    CHECK(journal.n > first);
    CHECK_OK(fl_lane_write_frozen(live.lane, &to));
    fl_lane_thaw(live.lane, live.now_ms);
    train(&j, journal.n + 200);
    lane_journal = (fl_journal_sink){0};
    lane_open(&again, kind, n, sync);
    fl_lane_begin_replay(again.lane, again.now_ms);
    for (size_t i = 0; i < cut.n; i++)
        CHECK_OK(replay_record(&again, &cut.at[i], i));
    check_lives(&lives, &again);
    for (size_t i = first; i < journal.n; i++)
        CHECK_OK(replay_one(&again, i));
    fl_lane_end_replay(again.lane, FLEET_OK, NULL, again.now_ms);
    check_same_but_life(&live, &again);
    CHECK_INT(again.lane->aggregate.life, live.lane->aggregate.life + 1);
    lane_close(&live);
    lane_close(&again);
    forget_journal(&cut);
    close_journal();
}

TEST(a_lane_is_made_again_from_a_snapshot_and_what_came_behind_it)
{
    live_and_restore(SIM_ADAM_CLIP, 3, true);
    live_and_restore(SIM_ADAM, 4, false);
    live_and_restore(SIM_BLOCKS, 3, true);
    live_and_restore(SIM_ADAGRAD, 1, true);
    live_and_restore(SIM_NO_DENSE, 2, false);
    live_and_restore(SIM_LIVES, 3, true);
    live_and_restore(SIM_LIVES, 2, false);
}

/* A save waits for a snapshot that is written, and the update with it: its
 * worker's part of that comes behind the save. */
TEST(an_update_waits_for_a_save_that_waits_for_a_snapshot)
{
    memory_journal cut = {0};
    const fl_journal_sink to = {&cut, memory_put, memory_commit};
    lane_kit k;

    open_journal();
    lane_open(&k, SIM_SGD, 2, true);
    CHECK_OK(fl_lane_freeze(k.lane, &to));
    lane_command(&k, 0, 1, "path");
    lane_push(&k, 1, 1, 7, 1);
    CHECK_INT(k.lane->version, 0);
    CHECK_INT(k.n_command, 0);
    CHECK_OK(fl_lane_write_frozen(k.lane, &to));
    fl_lane_thaw(k.lane, k.now_ms);
    CHECK_INT(k.n_command, 1);
    end_command(&k, FLEET_OK);
    CHECK_INT(k.lane->version, 0);
    lane_push(&k, 0, 2, 7, 1);
    CHECK_INT(k.lane->version, 1);
    CHECK_INT(k.lane->stream[0].done, 2);
    CHECK_INT(k.lane->stream[1].done, 1);
    drain(&k);
    lane_close(&k);
    forget_journal(&cut);
    close_journal();
}

/* Of each kind of record, one that is of another lane. */
TEST(a_snapshot_that_does_not_fit_is_refused)
{
    static const struct {
        uint16_t kind;
        size_t at;
        const char *words;
    } bad[] = {{FL_LANE_RECORD_STATE, 28, "streams of a snapshot"},
               {FL_LANE_RECORD_DENSE, 4, "weights of a snapshot"},
               {FL_LANE_RECORD_TABLE, 0, "tables of a snapshot"},
               {FL_LANE_RECORD_LIFE, 4, "lives of a snapshot"},
               {FL_LANE_RECORD_ROWS, 8, "rows of a snapshot"},
               {FL_LANE_RECORD_WHOLE, 8, "rows were found"}};
    memory_journal cut = {0};
    const fl_journal_sink to = {&cut, memory_put, memory_commit};
    lane_kit live, again;

    lane_open(&live, SIM_LIVES, 2, true);
    lane_push(&live, 0, 1, 7, 1);
    lane_push(&live, 1, 1, 8, 1);
    CHECK_OK(fl_lane_freeze(live.lane, &to));
    CHECK_OK(fl_lane_write_frozen(live.lane, &to));
    fl_lane_thaw(live.lane, 0);
    for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
        fleet_status status = FLEET_OK;
        bool changed = false;

        lane_open(&again, SIM_LIVES, 2, true);
        fl_lane_begin_replay(again.lane, 0);
        for (size_t i = 0; i < cut.n && status == FLEET_OK; i++) {
            memory_record *m = &cut.at[i];

            if (m->kind == bad[b].kind)
                m->data[bad[b].at] ^= 64;
            status = replay_record(&again, m, i);
            if (m->kind == bad[b].kind)
                m->data[bad[b].at] ^= 64;
            changed = changed || m->kind == bad[b].kind;
        }
        CHECK(changed);
        CHECK_STATUS(status, FLEET_ECORRUPT);
        CHECK_CONTAINS(fleet_last_error(), bad[b].words);
        lane_close(&again);
    }
    lane_close(&live);
    forget_journal(&cut);
}

/* Its first table counts shows and clicks. */
static void open_counting(lane_kit *k, fl_life *life)
{
    fl_rows *r;

    lane_open(k, SIM_ADAM, 2, true);
    r = k->layout.table[0];
    *life = (fl_life){.o.accessor = {.kind = FLEET_CTR_ACCESSOR}};
    r->life = life;
    CHECK_OK(r->methods->set_state(r, r->n_state, r->n_row + FL_N_ACCESSOR,
                                   r->initial_state));
}

TEST(a_lane_is_made_again_with_what_its_rows_were_shown)
{
    fl_life life[2];
    lane_kit live, again;
    random_job j = {.k = &live, .seed = 3, .sync = true, .n = 2};

    open_journal();
    open_counting(&live, &life[0]);
    train(&j, 300);
    lane_journal = (fl_journal_sink){0};
    open_counting(&again, &life[1]);
    replay_all(&again);
    check_same(&live, &again);
    lane_close(&live);
    lane_close(&again);
    close_journal();
}

/* What goes on after a replay goes on as it would have without. */
TEST(a_lane_that_was_made_again_goes_on_as_the_old_one_would_have)
{
    lane_kit live, again;
    random_job j = {.k = &live, .seed = 5, .sync = true, .n = 2}, other;

    open_journal();
    lane_open(&live, SIM_ADAM, 2, true);
    train(&j, 300);
    while (live.lane->stream[0].complete || live.lane->stream[1].complete ||
           live.lane->stream[0].reducing || live.lane->stream[1].reducing)
        train(&j, journal.n + 1);
    lane_journal = (fl_journal_sink){0};
    lane_open(&again, SIM_ADAM, 2, true);
    replay_all(&again);
    other = j;
    other.k = &again;
    again.now_ms = live.now_ms;
    for (int i = 0; i < 200; i++)
        for (int s = 0; s < 2; s++) {
            push(&j, s, live.lane->stream[s].done + 1);
            push(&other, s, again.lane->stream[s].done + 1);
            for (int n = 0; n < again.n_sent; n++)
                fl_packet_drop(again.sent[n].packet);
            again.n_sent = 0;
            drain(&live);
        }
    check_same(&live, &again);
    lane_close(&live);
    lane_close(&again);
    close_journal();
}

TEST(streams_that_have_left_have_left_and_the_lane_ends)
{
    lane_kit live, again;

    open_journal();
    lane_open(&live, SIM_SGD, 2, true);
    lane_push(&live, 0, 1, 7, 1);
    lane_push(&live, 1, 1, 8, 1);
    lane_say(&live, FL_MSG_STEP, 0, 2, FL_MSG_LEAVE | FL_MSG_END_OF_STEP);
    drain(&live);
    lane_journal = (fl_journal_sink){0};
    lane_open(&again, SIM_SGD, 2, true);
    replay_all(&again);
    check_same(&live, &again);
    lane_push(&again, 1, 2, 8, 1);
    lane_hear_status(&again, 1, FL_ANSWER_OK); /* nobody else is waited for */
    lane_say(&again, FL_MSG_STEP, 1, 3, FL_MSG_LEAVE | FL_MSG_END_OF_STEP);
    lane_hear_status(&again, 1, FL_ANSWER_OK);
    lane_say(&again, FL_MSG_BYE, 1, 0, 0);
    CHECK_INT(fl_lane_state_of(again.lane), FL_LANE_RUNS);
    lane_tick_until(&again, 1200);
    CHECK_INT(fl_lane_state_of(again.lane), FL_LANE_LEFT);
    lane_close(&live);
    lane_close(&again);
    close_journal();
}

/* Made again from all records, or from a snapshot: it waits for no process that
 * has ended. */
static void check_farewell(bool from_snapshot)
{
    memory_journal cut = {0};
    const fl_journal_sink to = {&cut, memory_put, memory_commit};
    lane_kit live, again;

    open_journal();
    lane_restart_ms = 90000;
    lane_open(&live, SIM_SGD, 2, true);
    lane_push(&live, 0, 1, 7, 1);
    lane_push(&live, 1, 1, 8, 1);
    lane_say(&live, FL_MSG_STEP, 0, 2, FL_MSG_LEAVE | FL_MSG_END_OF_STEP);
    for (int i = 0; i < 2; i++) /* also in place of heartbeats */
        lane_say(&live, FL_MSG_BYE, 0, 0, 0);
    drain(&live);
    if (from_snapshot) {
        CHECK_OK(fl_lane_freeze(live.lane, &to));
        CHECK_OK(fl_lane_write_frozen(live.lane, &to));
        fl_lane_thaw(live.lane, 0);
        forget_journal(&journal);
        journal = cut;
    }
    lane_journal = (fl_journal_sink){0};
    lane_open(&again, SIM_SGD, 2, true);
    lane_restart_ms = 0;
    replay_all(&again);
    check_same_but_life(&live, &again);
    lane_say(&again, FL_MSG_STEP, 1, 2, FL_MSG_LEAVE | FL_MSG_END_OF_STEP);
    lane_hear_status(&again, 1, FL_ANSWER_OK);
    CHECK_INT(fl_lane_state_of(again.lane), FL_LANE_RUNS);
    lane_say(&again, FL_MSG_BYE, 1, 0, 0);
    CHECK_INT(fl_lane_state_of(again.lane), FL_LANE_LEFT);
    lane_close(&live);
    lane_close(&again);
    close_journal();
}

TEST(who_has_heard_that_it_has_left_is_not_waited_for_once_more)
{
    check_farewell(false);
    check_farewell(true);
}

/* --- before it is done ---------------------------------------------------- */

static void check_failed(lane_kit *k, const char *words, uint64_t hash)
{
    CHECK_INT(fl_lane_state_of(k->lane), FL_LANE_FAILED);
    CHECK_STATUS(fl_lane_error(k->lane)->code, FLEET_EIO);
    CHECK_CONTAINS(fl_lane_error(k->lane)->text, "server 0, lane 0: the log");
    CHECK_CONTAINS(fl_lane_error(k->lane)->text, words);
    CHECK(store_hash(k->store) == hash);
    for (int i = 0; i < k->n_sent; i++) {
        CHECK_OK(fl_msg_decode(k->sent[i].packet, &k->msg));
        CHECK_INT(k->msg.head.kind, FL_MSG_ABORT);
    }
}

/* Nothing has changed, and nobody was told that it has. */
TEST(what_cannot_be_written_is_not_applied)
{
    for (int what = 0; what < 10; what++) {
        bool sync = what % 2;
        lane_kit k;
        uint64_t hash;

        open_journal();
        lane_open(&k, SIM_ADAM, 1, sync);
        lane_push(&k, 0, 1, 7, 1);
        drain(&k);
        hash = store_hash(k.store);
        *(what < 6 ? &journal.fail_put : &journal.fail_commit) = 1;
        if (what < 2 || what > 7)
            lane_push(&k, 0, 2, 7, 1);
        else if (what < 4)
            lane_say(&k, FL_MSG_STEP, 0, 2,
                     FL_MSG_PASS_END | FL_MSG_END_OF_STEP);
        else if (what < 6)
            lane_say(&k, FL_MSG_STEP, 0, 2, FL_MSG_LEAVE | FL_MSG_END_OF_STEP);
        else
            lane_numbers(&k, 0, 1, FL_REDUCTION_SUM, (double[]){1}, 1);
        check_failed(&k, what < 6 ? "it is full" : "cannot be flushed", hash);
        CHECK_INT(k.lane->stream[0].done, 1);
        CHECK_INT(k.lane->stream[0].reduced, 0);
        lane_close(&k);
        close_journal();
    }
}

/* --- one commit for many steps -------------------------------------------- */

/* Steps that have come at once are committed at once, and answered then. */
TEST(steps_that_are_gathered_are_committed_together)
{
    lane_kit k;

    open_journal();
    lane_open(&k, SIM_SGD, 4, false);
    fl_lane_gather(k.lane, true);
    for (uint32_t i = 0; i < 4; i++)
        lane_push(&k, i, 1, 7, 1);
    CHECK_INT(journal.n, 0);
    lane_silent(&k);
    fl_lane_gather(k.lane, false);
    CHECK_INT(journal.n, 4);
    CHECK_INT(journal.n_commit, 1);
    for (int i = 0; i < 4; i++)
        lane_hear_status(&k, i, FL_ANSWER_OK);
    CHECK_INT(k.lane->version, 4);
    lane_push(&k, 0, 2, 7, 1); /* and without each alone */
    lane_push(&k, 1, 2, 7, 1);
    CHECK_INT(journal.n_commit, 3);
    drain(&k);
    lane_close(&k);
    close_journal();
}

/* The first number of the rows that a pull was answered with. */
static float pulled(lane_kit *k, int to)
{
    const fl_msg *msg = lane_hear(k, to);

    CHECK_INT(msg->head.status, FL_ANSWER_OK);
    CHECK_INT(msg->head.n_section, 1);
    return *(const float *)msg->column[0][FL_AT_VALUES].data;
}

/* A worker's pull has what it pushed before, and its next step comes behind. */
TEST(what_comes_behind_a_gathered_step_sees_it_made)
{
    lane_kit k;
    float before;

    open_journal();
    lane_open(&k, SIM_SGD, 2, false);
    lane_pull(&k, 0, 0, 1);
    before = pulled(&k, 0);
    fl_lane_gather(k.lane, true);
    lane_push(&k, 0, 1, 0, 1);
    lane_push(&k, 1, 1, 0, 1);
    lane_pull(&k, 0, 0, 1);
    CHECK_INT(k.lane->version, 2);
    CHECK_INT(journal.n_commit, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    CHECK_CLOSE((float[]){pulled(&k, 0)}, (float[]){before - 2 * 0.25f}, 1,
                1e-6f);
    lane_push(&k, 0, 2, 7, 1);
    lane_push(&k, 0, 3, 7, 1);
    CHECK_INT(k.lane->stream[0].done, 2);
    fl_lane_gather(k.lane, false);
    CHECK_INT(k.lane->stream[0].done, 3);
    drain(&k);
    lane_close(&k);
    close_journal();
}

/* --- workers that are there meanwhile ------------------------------------- */

static void say_hello(lane_kit *k, uint32_t stream, const char *nonce)
{
    fl_msg_head head = lane_head(FL_MSG_HELLO, stream, 0, 0);
    char text[400];
    fl_msg_writer w;

    snprintf(text, sizeof text,
             "{\"job\":\"job\",\"mode\":\"ps-sync\",\"program\":\"program\\n\","
             "\"who\":\"host:%s\",\"isa\":\"plain\",\"nonce\":\"%s\","
             "\"workers\":%d,\"servers\":1,\"server\":0}",
             nonce, nonce, k->n_stream);
    head.incarnation = 0;
    head.peer = 0;
    lane_begin(k, &w, &head);
    fl_msg_text(&w, FL_SECTION_HELLO, text);
    lane_tell(k, &w, (int)stream);
}

TEST(workers_hear_that_the_lane_comes_back_and_nothing_of_them_is_taken)
{
    lane_kit live, again;
    const fl_msg *msg;

    open_journal();
    lane_open(&live, SIM_SGD, 2, false);
    say_hello(&live, 0, "a");
    for (uint64_t step = 1; step < 9; step++)
        lane_push(&live, 0, step, step, 1);
    drain(&live);
    lane_journal = (fl_journal_sink){0};
    lane_open(&again, SIM_SGD, 2, false);
    fl_lane_begin_replay(again.lane, 0);
    again.loads = true;
    again.command_progress = 40;
    again.load_total = 100;
    for (size_t i = 0; i < 5; i++)
        CHECK_OK(replay_one(&again, i));
    lane_say(&again, FL_MSG_HEARTBEAT, 0, 0, 0);
    lane_hear_status(&again, 0, FL_ANSWER_OK);
    lane_push(&again, 0, 5, 5, 1); /* the next one of those that are known */
    lane_hear_status(&again, 0, FL_ANSWER_WAITING);
    CHECK_INT(again.msg.answer.missing_stream, FL_NOBODY);
    CHECK_INT(again.msg.answer.applied, 5 + 40);
    lane_pull(&again, 1, 0, 2);
    lane_hear_status(&again, 1, FL_ANSWER_WAITING);
    say_hello(&again, 1, "b");
    msg = lane_hear(&again, 1);
    CHECK_INT(msg->head.status, FL_ANSWER_COMING);
    CHECK_INT(msg->head.incarnation, 0);
    CHECK(msg->answer.applied == 40 && msg->answer.durable == 100);
    CHECK_INT(again.lane->stream[0].done, 4);
    for (size_t i = 5; i < journal.n; i++)
        CHECK_OK(replay_one(&again, i));
    fl_lane_end_replay(again.lane, FLEET_OK, NULL, 0);
    again.loads = false;
    lane_silent(&again);
    lane_push(&again, 0, 8, 8, 1); /* sent again */
    lane_hear_status(&again, 0, FL_ANSWER_OK);
    check_same(&live, &again);
    lane_push(&again, 0, 9, 9, 1);
    lane_hear_status(&again, 0, FL_ANSWER_OK);
    CHECK_INT(again.lane->stream[0].done, 9);
    lane_close(&live);
    lane_close(&again);
    close_journal();
}

/* The process before knew that it cannot be started again. */
TEST(a_worker_without_a_log_is_not_waited_for_until_the_restart_deadline)
{
    lane_kit live, again;

    open_journal();
    lane_restart_ms = 9000;
    lane_open(&live, SIM_SGD, 1, true);
    say_hello(&live, 0, "a");
    drain(&live);
    lane_journal = (fl_journal_sink){0};
    lane_open(&again, SIM_SGD, 1, true);
    lane_restart_ms = 0;
    replay_all(&again);
    check_same(&live, &again);
    lane_tick_until(&again, 3200);
    CHECK_CONTAINS(fl_lane_error(again.lane)->text,
                   "worker 0 has not come within 3.0 s (connect deadline); it "
                   "has left no log");
    lane_close(&live);
    lane_close(&again);
    close_journal();
}

TEST(a_place_is_that_processs_after_a_replay)
{
    lane_kit live, again;

    open_journal();
    lane_open(&live, SIM_SGD, 2, true);
    say_hello(&live, 0, "a");
    say_hello(&live, 0, "a");
    CHECK_INT(count_records(FL_LANE_RECORD_PLACE), 1);
    drain(&live);
    lane_journal = (fl_journal_sink){0};
    lane_open(&again, SIM_SGD, 2, true);
    replay_all(&again);
    check_same(&live, &again);
    say_hello(&again, 0, "a");
    lane_hear_status(&again, 0, FL_ANSWER_OK);
    CHECK_INT(again.msg.head.incarnation, 1);
    say_hello(&again, 0, "c");
    lane_hear_status(&again, 0, FL_ANSWER_TAKEN);
    lane_close(&live);
    lane_close(&again);
    close_journal();
}

TEST(a_run_that_a_server_has_learned_is_known_after_a_replay)
{
    lane_kit live, again;

    open_journal();
    lane_open_second(&live);
    live.identity.run = 9;
    lane_run = 9;
    lane_push(&live, 0, 1, 700, 1);
    CHECK_INT(live.lane->run, 9);
    drain(&live);
    lane_journal = (fl_journal_sink){0};
    lane_open_second(&again);
    replay_all(&again);
    CHECK_INT(again.identity.run, 9);
    check_same(&live, &again);
    lane_run = LANE_RUN;
    lane_close(&live);
    lane_close(&again);
    close_journal();
}

/* --- records of something else -------------------------------------------- */

static void check_refused(size_t i, const char *words)
{
    lane_kit again;
    char where[80];

    lane_open(&again, SIM_SGD, 2, false);
    fl_lane_begin_replay(again.lane, 0);
    for (size_t at = 0; at < i; at++)
        CHECK_OK(replay_one(&again, at));
    CHECK_FAILS(replay_one(&again, i), FLEET_ECORRUPT, words);
    snprintf(where, sizeof where, "record %zu of the log is none of this lane",
             i + 1);
    CHECK_CONTAINS(fleet_last_error(), where);
    lane_close(&again);
}

TEST(a_record_that_does_not_fit_is_named)
{
    lane_kit live;

    open_journal();
    lane_open(&live, SIM_SGD, 2, false);
    for (uint64_t step = 1; step < 4; step++)
        lane_push(&live, 0, step, step, 1);
    drain(&live);
    lane_journal = (fl_journal_sink){0};
    CHECK_INT(journal.n, 3);
    journal.at[2].kind = 99;
    check_refused(2, "it is of kind 99");
    journal.at[2].kind = FL_LANE_RECORD_UPDATE;
    journal.at[2].size -= 8;
    check_refused(2, "it is too short");
    journal.at[2].size += 8;
    journal.at[2].data[0] = 77; /* its version */
    check_refused(2, "an update of version 77, expected 2");
    journal.at[2].data[0] = 2;
    journal.at[2].data[sizeof(fl_update_record)] = 5; /* its stream */
    check_refused(2, "worker 5 of 2");
    journal.at[2].data[sizeof(fl_update_record)] = 1;
    check_refused(2, "step 3 of worker 1, expected 1");
    lane_close(&live);
    close_journal();
}

/* It would not be the same lane. */
TEST(a_load_that_cannot_be_done_again_ends_the_replay)
{
    lane_kit live, again;

    open_journal();
    lane_open(&live, SIM_SGD, 1, false);
    lane_load(&live, 0, 1, "some save");
    end_command(&live, FLEET_OK);
    drain(&live);
    lane_journal = (fl_journal_sink){0};
    lane_open(&again, SIM_SGD, 1, false);
    fl_lane_begin_replay(again.lane, 0);
    CHECK_OK(fl_lane_replay(again.lane,
                            &(fl_journal_record){.lsn = 1,
                                                 .kind = journal.at[0].kind,
                                                 .size = journal.at[0].size,
                                                 .data = journal.at[0].data},
                            0));
    CHECK(fl_lane_replay_waits(again.lane));
    CHECK_TEXT(again.command_text, "some save");
    fl_lane_command_done(again.lane, FLEET_ENOENT, "the save is gone", 0, 0, 0);
    CHECK_STATUS(fl_lane_error(again.lane)->code, FLEET_ECORRUPT);
    CHECK_CONTAINS(fl_lane_error(again.lane)->text, "the save is gone");
    lane_close(&live);
    lane_close(&again);
    close_journal();
}

/* How far the load is counts for those who wait, and what could not be begun
 * once need not be begun again. */
TEST(a_load_that_failed_fails_again_in_a_replay)
{
    for (int fails = 0; fails < 2; fails++) {
        lane_kit live, again;

        open_journal();
        lane_open(&live, SIM_SGD, 1, false);
        live.fails_commands = fails;
        lane_load(&live, 0, 1, "some save");
        if (!fails)
            end_command(&live, FLEET_EIO);
        lane_push(&live, 0, 2, 7, 1);
        drain(&live);
        lane_journal = (fl_journal_sink){0};
        lane_open(&again, SIM_SGD, 1, false);
        again.fails_commands = fails;
        replay_all(&again);
        CHECK(live.lane->stream[0].command_status != FLEET_OK);
        check_same(&live, &again);
        lane_close(&again);
        lane_open(&again, SIM_SGD, 1, false);
        again.fails_commands = !fails;
        fl_lane_begin_replay(again.lane, 0);
        if (fails) { /* now it can be done: it is another lane */
            CHECK_OK(
                fl_lane_replay(again.lane,
                               &(fl_journal_record){.lsn = 1,
                                                    .kind = journal.at[0].kind,
                                                    .size = journal.at[0].size,
                                                    .data = journal.at[0].data},
                               0));
            again.command_progress = 40;
            lane_push(&again, 0, 1, 5, 1);
            lane_hear_status(&again, 0, FL_ANSWER_WAITING);
            CHECK_INT(again.msg.answer.applied, 41);
            fl_lane_command_done(again.lane, FLEET_OK, "loaded", 0, 0, 0);
            CHECK_CONTAINS(fl_lane_error(again.lane)->text,
                           "server 0, lane 0: a load came to");
        } else {
            CHECK_FAILS(replay_one(&again, 0), FLEET_ENOMEM,
                        "server 0, lane 0: record 1 of the log cannot be "
                        "applied");
        }
        lane_close(&live);
        lane_close(&again);
        close_journal();
    }
}

/* There may be room when the log is read, and other rows than now. */
TEST(a_write_that_failed_for_want_of_room_ends_the_job_and_is_not_in_the_log)
{
    for (int has_log = 0; has_log < 2; has_log++) {
        lane_kit k;

        if (has_log)
            open_journal();
        lane_open(&k, SIM_SGD, 1, false);
        lane_write(&k, 0, 1, "rows");
        end_command(&k, FLEET_EIO);
        drain(&k);
        CHECK_INT(fl_lane_state_of(k.lane),
                  has_log ? FL_LANE_FAILED : FL_LANE_RUNS);
        if (has_log) {
            CHECK_CONTAINS(fl_lane_error(k.lane)->text, "there is no room");
            CHECK_INT(journal.n, 0);
            close_journal();
        }
        lane_close(&k);
    }
}

/* The lanes of a server are made again at once, in no order. */
TEST(the_run_of_a_server_is_the_latest_that_a_lane_has_written_down)
{
    static const uint32_t runs[] = {9, 12, 11};
    lane_kit again;

    lane_open_second(&again);
    fl_lane_begin_replay(again.lane, 0);
    for (uint64_t i = 0; i < 3; i++) {
        fl_run_record r = {.run = runs[i]};

        CHECK_OK(fl_lane_replay(again.lane,
                                &(fl_journal_record){.lsn = i + 1,
                                                     .kind = FL_LANE_RECORD_RUN,
                                                     .size = sizeof r,
                                                     .data = (const char *)&r},
                                0));
    }
    CHECK_INT(again.identity.run, 12);
    lane_close(&again);
}

/* --- a wish to stop ------------------------------------------------------- */

static void push_and_stop(lane_kit *k, uint32_t stream, uint64_t step)
{
    const fl_msg_head head =
        lane_head(FL_MSG_STEP, stream, step, FL_MSG_END_OF_STEP | FL_MSG_STOP);
    const fl_update_settings settings = {.learning_rate = 0.25f};
    fl_msg_writer w;

    lane_begin(k, &w, &head);
    lane_close_step(&w, 1, &settings);
    lane_tell(k, &w, (int)stream);
}

static bool hears_stop(lane_kit *k, int to)
{
    const fl_msg *msg = lane_hear(k, to);

    CHECK_INT(msg->head.status, FL_ANSWER_OK);
    return msg->head.flags & FL_MSG_STOP;
}

/* All workers of an update hear that one of them wants to stop, also from a
 * lane that was made again, and those of other updates do not. */
TEST(a_wish_to_stop_is_heard_by_all_workers_of_its_update)
{
    lane_kit k, again;

    open_journal();
    lane_open(&k, SIM_SGD, 2, true);
    for (uint64_t step = 1; step <= 3; step++) {
        lane_push(&k, 0, step, 7, 1);
        if (step == 2)
            push_and_stop(&k, 1, step);
        else
            lane_push(&k, 1, step, 8, 1);
        CHECK(hears_stop(&k, 0) == (step == 2));
        CHECK(hears_stop(&k, 1) == (step == 2));
        if (step == 2) { /* its answer was lost */
            lane_push(&k, 0, step, 7, 1);
            CHECK(hears_stop(&k, 0));
        }
        if (step != 2)
            continue;
        lane_journal = (fl_journal_sink){0};
        lane_open(&again, SIM_SGD, 2, true);
        replay_all(&again);
        lane_push(&again, 0, step, 7, 1);
        CHECK(hears_stop(&again, 0));
        lane_close(&again);
        open_journal();
    }
    lane_close(&k);
    close_journal();
}
