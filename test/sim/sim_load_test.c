/* sim_load_test.c - simulated jobs whose servers begin with a load: workers
 * that come meanwhile wait for as long as it gets on; a server that dies while
 * it loads, or does not get on, is named; one that cannot load says why.
 */
#define SUITE sim
#include "sim_save.h"
#include "sim_seeds.h"
#include "test.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "runtime/store/table.h"

static char wrong[1400];

#define WRONG(...)                                                             \
    (snprintf(wrong, sizeof wrong, __VA_ARGS__), (const char *)wrong)

/* --- what is loaded ------------------------------------------------------- */

/* Some rows that no store has at first, and small numbers in all weights. */
static void make_store(fl_store *s)
{
    for (size_t t = 0; t < s->tables.n; t++) {
        fl_rows *rows = s->tables.entry[t].value;

        for (uint64_t i = 0; i < 20; i++) {
            uint64_t key = i * 0x9E3779B97F4A7C15 + (uint64_t)(t & 1);
            float *row;

            CHECK_OK(rows->methods->make(rows, &key, 1, &row));
            for (int64_t d = 0; d < rows->dim; d++)
                row[d] = (float)(i % 5) - 2;
        }
    }
    s->updates = 7;
}

/* The save that servers of jobs of that kind begin with. */
static const char *first_save(sim_kind kind)
{
    static const char *path[SIM_N_KIND];
    fl_store *s;
    char name[20];

    if (path[kind])
        return path[kind];
    snprintf(name, sizeof name, "first-%d", (int)kind);
    path[kind] = test_path(name);
    s = sim_store(sim_model_of(kind), fl_table_make);
    make_store(s);
    CHECK_OK(sim_save_store(s, path[kind]));
    fl_store_destroy(s);
    return path[kind];
}

/* In every second job a load may take longer than the connect deadline; a part
 * of it does not. */
static void make_job(uint64_t seed, sim_options *o, sim_script *k)
{
    sim_make(seed, sim_pick(seed, 1, 3) > 0, o, k);
    o->load = k->first = first_save(k->kind);
    o->load_parts = 1 + sim_pick(seed, 80, 12);
    o->load_ms = sim_pick(seed, 81, 2) ? 100 : (int)o->connect_ms / 2;
}

/* --- all is well ---------------------------------------------------------- */

static int n_long; /* runs in which a load took longer than that deadline */

static const char *loads_first(uint64_t seed)
{
    const char *bad;
    bool is_long = false;
    sim_options o;
    sim_script k;
    sim s;

    make_job(seed, &o, &k);
    sim_open(&s, &o, sim_work, &k);
    sim_run(&s, SIM_LONGEST_MS);
    bad = sim_check(&s, &k);
    for (int i = 0; i < o.n_server; i++)
        is_long = is_long || s.server[i].loaded_ms - s.server[i].came_ms >
                                 o.connect_ms + o.workers_ms;
    n_long += is_long;
    sim_close(&s);
    return bad;
}

TEST_LIMIT(workers_wait_for_servers_that_load_and_train_on_from_there, 7200)
{
    uint64_t n = SIM_SEEDS(loads_first, 500);

    CHECK(n_long >= (int)n / 5);
}

/* --- a process dies ------------------------------------------------------- */

static int n_failed;

/* With one of the job's first messages: most of them are hellos. */
static const char *dies(uint64_t seed, bool server)
{
    const char *bad;
    sim_options o;
    sim_script k;
    sim s;

    make_job(seed, &o, &k);
    o.fault[0] = (sim_fault){.kind = SIM_DIES,
                             .worker = SIM_NOBODY,
                             .server = SIM_NOBODY,
                             .message = FL_MSG_HELLO,
                             .count = sim_pick(seed, 82, 20),
                             .ms = sim_pick(seed, 83, 3) ? -1 : 1000};
    if (server)
        o.fault[0].server = sim_pick(seed, 84, o.n_server);
    else
        o.fault[0].worker = sim_pick(seed, 84, o.n_worker);
    sim_open(&s, &o, sim_work, &k);
    sim_run(&s, SIM_LONGEST_MS);
    bad = sim_check_fault(&s, &k, true);
    n_failed += !sim_is_well(&s);
    sim_close(&s);
    return bad;
}

static const char *server_dies(uint64_t seed)
{
    return dies(seed, true);
}

static const char *worker_dies(uint64_t seed)
{
    return dies(seed, false);
}

TEST_LIMIT(a_server_that_dies_while_it_loads_is_named, 7200)
{
    uint64_t n = SIM_SEEDS(server_dies, 400);

    CHECK(n_failed >= (int)n / 4);
}

TEST_LIMIT(a_worker_that_dies_while_servers_load_is_named, 7200)
{
    uint64_t n = SIM_SEEDS(worker_dies, 400);

    CHECK(n_failed >= (int)n / 4);
}

/* --- a load fails --------------------------------------------------------- */

/* All processes end, with these words. */
static const char *check_words(const sim *s, fleet_status code,
                               const char *words)
{
    for (int i = 0; i < s->o.n_worker; i++) {
        const sim_worker *w = &s->worker[i];

        if (w->phase != SIM_ENDED)
            return WRONG("worker %d has not ended", i);
        if (w->status != code || !strstr(w->text, words))
            return WRONG("worker %d: %s: %s", i, fleet_status_name(w->status),
                         w->text);
    }
    for (int i = 0; i < s->n_lane; i++) {
        const fl_error *e = fl_lane_error(s->lane[i].core);

        if (fl_lane_state_of(s->lane[i].core) != FL_LANE_FAILED)
            return WRONG("lane %d is in state %d", i,
                         fl_lane_state_of(s->lane[i].core));
        if (e->code != code || !strstr(e->text, words))
            return WRONG("lane %d: %s: %s", i, fleet_status_name(e->code),
                         e->text);
    }
    return NULL;
}

static const char *run_in_vain(const sim_options *o, sim_script *k,
                               fleet_status code, const char *words)
{
    const char *bad;
    sim s;

    sim_open(&s, o, sim_work, k);
    sim_run(&s, SIM_LONGEST_MS);
    bad = check_words(&s, code, words);
    sim_close(&s);
    return bad;
}

/* Whether its workers are there already, or come when the load has failed. What
 * is said is not lost: no one says it again. */
static const char *cannot_load(uint64_t seed)
{
    sim_options o;
    sim_script k;

    make_job(seed, &o, &k);
    o.lost = o.slow = o.strange = 0;
    o.load = test_path("nowhere");
    o.load_ms = 1 + sim_pick(seed, 85, 500);
    return run_in_vain(&o, &k, FLEET_ENOENT, "nowhere");
}

TEST_LIMIT(a_server_that_cannot_load_tells_each_worker_why, 7200)
{
    SIM_SEEDS(cannot_load, 400);
}

/* --- a load does not get on ----------------------------------------------- */

static const char *sticks(uint64_t seed)
{
    char words[60];
    sim_options o;
    sim_script k;
    const char *bad;
    sim s;

    make_job(seed, &o, &k);
    o.lost = o.slow = o.strange = 0;
    o.load_parts++;
    o.load_ms = 1 + sim_pick(seed, 85, 500);
    o.stuck = 1 + sim_pick(seed, 86, o.n_server);
    snprintf(words, sizeof words, "server %d", o.stuck - 1);
    sim_open(&s, &o, sim_work, &k);
    sim_run(&s, SIM_LONGEST_MS);
    bad = check_words(&s, FLEET_ETIMEDOUT, words);
    if (!bad && s.now_ms > 3 * o.connect_ms)
        bad = WRONG("it took %lld ms", (long long)s.now_ms);
    sim_close(&s);
    return bad ? bad : NULL;
}

TEST_LIMIT(a_server_whose_load_does_not_get_on_is_named_by_all, 7200)
{
    SIM_SEEDS(sticks, 400);
}
