/* sim_beside_test.c - simulated jobs in async whose worker 0 saves in the
 * middle of a pass, while the other workers push: what the save has of each
 * lane is, to the bit, all of the steps that its cut says and none of a later
 * one, also on links that lose and repeat and when a process sleeps; and the
 * job goes on.
 */
#define SUITE sim
#include "sim_save.h"
#include "sim_seeds.h"
#include "test.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json/json.h"
#include "runtime/store/table.h"
#include "sim_reference.h"

enum { STEPS = 7 };

static char wrong[1400];

#define WRONG(...)                                                             \
    (snprintf(wrong, sizeof wrong, __VA_ARGS__), (const char *)wrong)

static int n_beside; /* cuts that others' steps came after, in that pass */

/* --- what a cut says ------------------------------------------------------ */

typedef struct cut {
    int server, lane;
    int64_t version;
    uint64_t done[SIM_MOST_WORKER];
} cut;

static void read_cut(const fl_at *at, int n_worker, cut *c)
{
    fl_at prefix = fl_at_key(at, "prefix"), version = fl_at_key(at, "version");
    fl_at done = fl_at_key(at, "done");
    const char *text = NULL;

    CHECK_OK(fl_at_string(&prefix, &text));
    CHECK_INT(sscanf(text, "part-%d-%d-", &c->server, &c->lane), 2);
    CHECK_OK(fl_at_int(&version, 0, INT64_MAX, &c->version));
    CHECK_INT(fl_at_count(&done), n_worker);
    for (fl_at e = fl_at_first(&done); e.json; fl_at_next(&done, &e)) {
        int64_t step = -1;

        CHECK_OK(fl_at_int(&e, 0, INT64_MAX, &step));
        c->done[e.index] = (uint64_t)step;
    }
}

/* Those of all lanes. */
static int read_cuts(const char *save, int n_worker, cut *c)
{
    char path[300], *text;
    fl_json *json;
    size_t size;
    int n = 0;

    snprintf(path, sizeof path, "%s/manifest.json", save);
    CHECK_OK(fl_file_read(path, &text, &size));
    CHECK_OK(fl_json_parse(text, size, path, &json));
    fl_at root = fl_at_root(json), list = fl_at_key(&root, "cuts");
    for (fl_at e = fl_at_first(&list); e.json; fl_at_next(&list, &e)) {
        CHECK(n < SIM_MOST_LANE);
        read_cut(&e, n_worker, &c[n++]);
    }
    fl_json_free(json);
    fl_free(text);
    return n;
}

/* --- what the save has of a lane ------------------------------------------ */

typedef struct lane_rows {
    fl_rows *other;
    const fl_bucket_set *own;
    int64_t n;
    bool same;
} lane_rows;

static fleet_status compare_row(void *arg, int bucket, uint64_t key,
                                const float *row)
{
    lane_rows *r = arg;
    float *same;

    if (!fl_bucket_set_has(r->own, bucket))
        return FLEET_OK;
    r->n++;
    CHECK_OK(r->other->methods->find(r->other, &key, 1, &same));
    r->same = r->same && same &&
              memcmp(same, row, (size_t)r->other->dim * sizeof *row) == 0 &&
              fl_row_of(same)->step ==
                  ((const fl_row_head *)(const void *)row - 1)->step;
    return FLEET_OK;
}

static const char *compare_tables(const fl_store *got, const fl_store *want,
                                  const fl_bucket_set *own)
{
    for (size_t t = 0; t < got->tables.n; t++) {
        fl_rows *a = got->tables.entry[t].value;
        fl_rows *b = fl_store_rows(want, a->name);
        lane_rows there = {b, own, 0, true}, back = {a, own, 0, true};

        CHECK_OK(a->methods->each(a, compare_row, &there));
        CHECK_OK(b->methods->each(b, compare_row, &back));
        if (!there.same || !back.same)
            return WRONG("rows of \"%s\": %" PRId64 " were saved, %" PRId64
                         " should be, or others",
                         a->name, there.n, back.n);
    }
    return NULL;
}

static const char *compare_blocks(const fl_store *got, const fl_store *want,
                                  const fl_bucket_set *own)
{
    for (size_t i = 0; i < got->params.n; i++) {
        const fl_param *p = got->params.entry[i].value;

        for (int64_t b = 0; b < fl_blocks_of(p); b++)
            if (fl_bucket_set_has(own, fl_block_bucket(got, p, b)) &&
                !sim_same_block(p, fl_store_param(want, p->name), b))
                return WRONG("block %" PRId64 " of \"%s\"", b, p->name);
    }
    return NULL;
}

/* The lane had the steps that the cut says; have others' come after it? */
static const char *check_cut(const sim *s, const sim_script *k, const cut *c,
                             const fl_store *got)
{
    fl_bucket_set own = fl_bucket_map_own(&s->map, c->server, c->lane);
    const char *bad = NULL;
    bool beside = false;
    sim_reference r;

    sim_reference_open_until(&r, s, k, c->done);
    if (r.store->updates != c->version)
        bad = WRONG("version %" PRId64 " with steps of version %" PRId64,
                    c->version, r.store->updates);
    if (!bad)
        bad = compare_blocks(got, r.store, &own);
    if (!bad)
        bad = compare_tables(got, r.store, &own);
    for (int w = 1; w < s->o.n_worker; w++)
        beside = beside || c->done[w] < (uint64_t)k->steps[w][0];
    n_beside += beside && c->version > 0;
    sim_reference_close(&r);
    return bad;
}

static const char *check_save(const sim *s, const sim_script *k)
{
    fl_store *got = sim_store(s->o.model, fl_table_make);
    cut c[SIM_MOST_LANE];
    int n = read_cuts(k->beside, s->o.n_worker, c);
    const char *bad = NULL;

    CHECK_OK(sim_load_store(got, k->beside));
    if (n != s->n_lane)
        bad = WRONG("%d cuts of %d lanes", n, s->n_lane);
    for (int i = 0; i < n && !bad; i++)
        bad = check_cut(s, k, &c[i], got);
    fl_store_destroy(got);
    return bad;
}

/* --- jobs ----------------------------------------------------------------- */

static const char *saves_beside_pushes(uint64_t seed)
{
    const char *bad;
    sim_options o;
    sim_script k;
    sim s;

    sim_make(seed, false, &o, &k);
    o.half = (fl_push_options){0}; /* steps of a group are one */
    k.merged = 0;
    for (int w = 0; w < o.n_worker; w++)
        k.steps[w][0] = STEPS;
    k.beside = test_path("beside");
    k.beside_after = sim_pick(seed, 90, STEPS);
    if (sim_pick(seed, 91, 2)) {
        o.lost = o.slow = 0;
        o.fault[0] = (sim_fault){.kind = SIM_SLEEPS,
                                 .worker = sim_pick(seed, 92, o.n_worker),
                                 .server = SIM_NOBODY,
                                 .count = sim_pick(seed, 93, 200),
                                 .ms = 1 + sim_pick(seed, 94, 700)};
    }
    sim_open(&s, &o, sim_work, &k);
    sim_run(&s, SIM_LONGEST_MS);
    bad = sim_check(&s, &k);
    if (!bad)
        bad = check_save(&s, &k);
    sim_close(&s);
    return bad;
}

TEST_LIMIT(a_save_beside_pushes_has_of_each_lane_what_its_cut_says, 7200)
{
    uint64_t n = SIM_SEEDS(saves_beside_pushes, 300);

    CHECK(n_beside >= (int)n / 2);
}
