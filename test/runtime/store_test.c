/* store_test.c - what a handle keeps: the hash of all that was trained, as the
 * contract has it; how many threads work on it. */
#define SUITE store
#include "test.h"
#include "train_kit.h"

#include <fleet/fleet.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/job/handle.h"
#include "base/memory.h"
#include "base/pool.h"
#include "runtime/plan/job_signature.h"

/* --- params_hash --------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const fl_map_entry *)a)->name,
                  ((const fl_map_entry *)b)->name);
}

typedef struct row_sum {
    size_t width;
    uint64_t sum;
} row_sum;

static fleet_status add_row(void *arg, int bucket, uint64_t key,
                            const float *row)
{
    row_sum *s = arg;
    char bytes[8 + 9 * 4]; /* the kit's rows are 9 or 1 wide */

    (void)bucket;
    memcpy(bytes, &key, 8);
    memcpy(bytes + 8, row, s->width * 4);
    s->sum += fl_hash(bytes, 8 + s->width * 4, 0);
    return FLEET_OK;
}

/* The bytes that docs/formats.md says are hashed. */
static fl_text hashed_bytes(fl_store *s)
{
    fl_text t = {0};

    qsort(s->params.entry, s->params.n, sizeof *s->params.entry, by_name);
    qsort(s->tables.entry, s->tables.n, sizeof *s->tables.entry, by_name);
    for (size_t i = 0; i < s->params.n; i++) {
        const fl_param *p = s->params.entry[i].value;
        uint32_t rank = (uint32_t)p->shape.n_dim;

        fl_text_bytes(&t, p->name, strlen(p->name) + 1);
        fl_text_bytes(&t, &rank, 4);
        fl_text_bytes(&t, p->shape.dim, rank * 8);
        fl_text_bytes(&t, p->flat->weight + p->offset, (size_t)p->n * 4);
    }
    for (size_t i = 0; i < s->tables.n; i++) {
        const fl_rows *r = s->tables.entry[i].value;
        row_sum rows = {(size_t)r->dim, 0};

        CHECK_OK(r->methods->each(r, add_row, &rows));
        fl_text_bytes(&t, r->name, strlen(r->name) + 1);
        fl_text_bytes(&t, &rows.sum, 8);
    }
    return t;
}

TEST(params_hash_is_that_of_the_contract)
{
    kit_model m;
    fl_text bytes;
    uint64_t hash;

    kit_open(&m, KIT_CTR, &(kit_options){0});
    hash = kit_train(&m, 30, 3);
    bytes = hashed_bytes(m.f->store); /* sorts the maps: they end here */
    CHECK_OK(bytes.status);
    CHECK(fl_hash(bytes.chars, bytes.length, 0) == hash);
    fl_text_done(&bytes);
    kit_close(&m);
}

/* --- threads ------------------------------------------------------------- */

static int threadrows(int asked)
{
    fleet *f;
    int n;

    CHECK_OK(fleet_init(&f, &(fleet_options){.num_threads = asked}));
    n = fl_pool_size(f->context.pool);
    fleet_destroy(f);
    return n;
}

TEST(options_then_the_environment_say_how_many_threads_there_are)
{
    fleet *f;

    setenv("OMP_NUM_THREADS", "3", 1);
    unsetenv("FLEET_NUM_THREADS");
    CHECK_INT(threadrows(2), 2);
    CHECK_INT(threadrows(0), 3);
    setenv("FLEET_NUM_THREADS", "5", 1);
    CHECK_INT(threadrows(0), 5);
    setenv("FLEET_NUM_THREADS", "none", 1);
    CHECK_INT(threadrows(0), 3);
    unsetenv("FLEET_NUM_THREADS");
    unsetenv("OMP_NUM_THREADS");
    CHECK_INT(threadrows(0), fl_cpu_count());
    CHECK_FAILS(fleet_init(&f, &(fleet_options){.num_threads = 65}),
                FLEET_EINVAL, "expected 0 to 64, got 65");
    CHECK_FAILS(
        fleet_init(&f, &(fleet_options){.log_level = (fleet_log_level)77}),
        FLEET_EINVAL, "log_level: 77 is none");
}

/* --- what the processes of a job must have in common ---------------------- */

static char *signature_of(int frozen)
{
    fleet_fc_options how = {.weight = {.frozen = frozen}};
    fleet_executor *e;
    fleet_program *p;
    fleet_var *x;
    char *text;
    fleet *f;

    CHECK_OK(fleet_init(&f, NULL));
    p = fleet_program_create(f);
    x = fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, 2}, 2);
    CHECK(fleet_fc(p, x, 3, &how));
    e = fleet_executor_create(p, NULL);
    CHECK(e);
    text = fl_job_signature_text(f->store);
    CHECK(text);
    fleet_executor_destroy(e);
    fleet_destroy(f);
    return text;
}

TEST(a_parameter_that_only_one_process_trains_is_named)
{
    char *ours = signature_of(1), *theirs = signature_of(0), *same;
    char *text = fl_job_signature_difference("rank 0", ours, "rank 1", theirs);

    CHECK_CONTAINS(text ? text : "nothing", "frozen is yes in rank 0, no in");
    CHECK_CONTAINS(text, "fc_0.w");
    same = fl_job_signature_difference("rank 0", ours, "rank 1", ours);
    CHECK(same == NULL);
    fl_free(text);
    fl_free(ours);
    fl_free(theirs);
}
