/* residuals_test.c - what pushes round away is carried over to the next ones of
 * the same row or block: nothing is lost, and nothing counts twice. */
#define SUITE residuals
#include "test.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "ps/residuals.h"
#include "runtime/store/table.h"
#include "sim_job.h"

enum { DIM = 3 }; /* of the table "first", which is number 0 */

typedef struct scene {
    fl_store *store;
    fl_partition layout;
    fl_residuals *r;
} scene;

static void open_scene(scene *s)
{
    s->store = sim_store(sim_model_of(SIM_BLOCKS), fl_table_make);
    CHECK_OK(fl_partition_make(&s->layout, s->store, 1));
    CHECK_INT(s->layout.table[0]->dim, DIM);
    CHECK_OK(fl_residuals_create(&s->r, &s->layout));
}

static void close_scene(scene *s)
{
    fl_residuals_destroy(s->r);
    fl_partition_done(&s->layout);
    fl_store_destroy(s->store);
    sim_models_close();
}

/* A push of one row, of which `sum` gets what arrives. */
static void push_row(scene *s, uint64_t key, const float *grad, bool is_sent,
                     double *sum)
{
    float values[DIM], back[DIM];
    char bytes[DIM * 4];

    memcpy(values, grad, sizeof values);
    fl_residuals_begin(s->r);
    CHECK_OK(fl_residuals_add_rows(s->r, 0, &key, values, 1));
    fl_codec_write(FL_CODEC_INT8, bytes, values, true, 1, DIM);
    fl_codec_read(FL_CODEC_INT8, back, bytes, 1, DIM);
    if (is_sent)
        fl_residuals_keep(s->r);
    for (int i = 0; i < DIM && is_sent; i++)
        sum[i] += (double)back[i];
}

/* Numbers that int8 rounds to 0, again and again, arrive all the same. */
TEST(what_arrives_of_a_row_is_the_sum_but_for_one_rounding)
{
    const float grad[DIM] = {1, 0.001f, -0.0003f};
    double sum[2][DIM] = {{0}};
    scene s;

    open_scene(&s);
    for (int i = 0; i < 1000; i++) {
        push_row(&s, 7, grad, true, sum[0]);
        push_row(&s, 8, grad, i % 2,
                 sum[1]); /* half of them could not be made */
    }
    for (int i = 0; i < DIM; i++) {
        CHECK_NEAR(sum[0][i], 1000 * (double)grad[i], 0.008);
        CHECK_NEAR(sum[1][i], 500 * (double)grad[i], 0.008);
    }
    close_scene(&s);
}

TEST(a_load_forgets_them)
{
    const float grad[DIM] = {1, 0.003f, 0}, none[DIM] = {0};
    double sum[DIM] = {0};
    scene s;

    open_scene(&s);
    push_row(&s, 7, grad, true, sum);
    fl_residuals_forget(s.r);
    memset(sum, 0, sizeof sum);
    push_row(&s, 7, none, true, sum);
    CHECK_NEAR(sum[1], 0, 0);
    close_scene(&s);
}

static int large_of(const scene *s)
{
    int i = 0;

    while (strcmp(s->layout.param[i]->name, "large") != 0)
        i++;
    return i;
}

/* A push of a block, every other number of which is rounded to 0. */
static float push_block(scene *s, int block, int64_t n, float size)
{
    static float values[FL_BLOCK];
    static char bytes[FL_BLOCK * 4];
    float first;

    for (int64_t i = 0; i < n; i++)
        values[i] = size * (i % 2 ? 1 : 0.001f * (float)(1 + block));
    fl_residuals_begin(s->r);
    CHECK_OK(fl_residuals_add_block(s->r, fl_block_key(large_of(s), block),
                                    values, n));
    first = values[0];
    fl_codec_write(FL_CODEC_INT8, bytes, values, true, 1, n);
    fl_residuals_keep(s->r);
    return first;
}

/* Of a parameter of two blocks. */
TEST(each_block_has_its_own)
{
    scene s;

    open_scene(&s);
    push_block(&s, 1, 100, 1);
    push_block(&s, 0, FL_BLOCK, 1);
    CHECK_NEAR((double)push_block(&s, 0, FL_BLOCK, 0), 0.001, 1e-9);
    CHECK_NEAR((double)push_block(&s, 1, 100, 0), 0.002, 1e-9);
    close_scene(&s);
}
