/* lookup_backward_test.c - the update of a lookup by itself: rows that have
 * gone since they were found are made anew. */
#define SUITE lookup_backward
#include "train_kit.h"
#include "test.h"

#include <string.h>

#include "base/memory.h"
#include "fleet/job/handle.h"
#include "runtime/lookup/lookup_data.h"
#include "runtime/optim/optimizer.h"
#include "runtime/plan/plan.h"
#include "runtime/store/table.h"

enum { DIM = 3, KEY = 7 };

static const float gradient[DIM] = {1, -2, 4};

/* A lookup that has found the only row of its table, and its gradient. */
static int find_the_row(fl_lookup *k, const fl_filler *filler)
{
    int part = fl_part_of(fl_mix(KEY));
    fl_lookup_part *p = &k->part[part];
    uint64_t key = KEY;
    bool is_new;
    float *row;

    *k = (fl_lookup){0};
    CHECK_OK(fl_table_make("t", DIM, 0, filler, &k->rows));
    CHECK_OK(k->rows->methods->make(k->rows, &key, 1, &row));
    row[0] = 99;
    CHECK_OK(fl_key_set_begin(&p->keys, 1));
    fl_key_set_add(&p->keys, KEY, &is_new);
    p->row = fl_alloc_array(1, sizeof *p->row);
    p->which = fl_alloc_array(1, sizeof *p->which);
    p->grad = fl_alloc_array(1, sizeof *p->grad);
    p->target = fl_alloc_array(1, sizeof *p->target);
    CHECK_OK(fl_lookup_find(k, p));
    CHECK(p->row[0] == row);
    p->grad[0] = gradient;
    p->n_grad = 1;
    return part;
}

static void update(fl_lookup *k, const fleet_optimizer *o, int part)
{
    const fleet_var table = {.name = "t"};
    const fl_lookup_config c = {.table = &table};
    const fl_step step = {.config = &c};
    fl_update_now now = {.optimizer = o};
    char *base[] = {(char *)k, (char *)&now};
    fl_arg arg[] = {{.base = &base[0]}, {.base = &base[1]}};
    const fl_instance in = {.step = &step, .arg = arg};

    fl_optimizer_update(o, 0, 1, &now.u);
    CHECK_OK(fl_kernel_rows_update.run(
        &in, &(fl_range){.begin = part, .end = part + 1}));
}

static void check_made_anew(int how)
{
    fleet_initializer uniform = {FLEET_INIT_UNIFORM, -1, 1};
    fl_filler filler = fl_filler_make(&uniform, DIM, DIM, 5, "t");
    fleet *f = kit_handle(&(kit_options){0});
    fleet_optimizer *o = fleet_sgd(f, 0.5f);
    uint64_t key = KEY;
    float *row, want[DIM];
    int64_t erased;
    fl_lookup k;
    int part = find_the_row(&k, &filler);
    fl_rows *rows = k.rows;

    if (how == 0)
        CHECK_OK(rows->methods->erase(rows, &key, 1, &erased));
    else
        rows->methods->clear(rows);
    update(&k, o, part);
    CHECK_INT(rows->methods->count(rows), 1);
    CHECK_OK(rows->methods->find(rows, &key, 1, &row));
    fl_filler_row(&filler, KEY, want, DIM);
    for (int i = 0; i < DIM; i++)
        want[i] -= 0.5f * gradient[i];
    CHECK(memcmp(row, want, sizeof want) == 0);
    CHECK_INT(fl_row_of(row)->step, 1);
    fl_lookup_done(&k);
    rows->methods->destroy(rows);
    fleet_destroy(f);
}

TEST(a_row_that_was_erased_since_it_was_found_is_made_anew)
{
    check_made_anew(0);
}

TEST(a_row_of_a_table_that_was_cleared_since_is_made_anew)
{
    check_made_anew(1);
}
