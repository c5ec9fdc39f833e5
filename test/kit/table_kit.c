/* table_kit.c - see table_kit.h. */
#define SUITE table_kit
#include "table_kit.h"
#include "test.h"

#include "fleet/job/handle.h"

const lookup_case rows_kit_mixed = {
    .slot = {{"one", 0, 1, FLEET_SUM, 40},
             {"three", 0, 3, FLEET_SUM, 60},
             {"other", 1, 1, FLEET_SUM, 30},
             {"some", 0, -1, FLEET_SUM, 50},
             {"mean", 0, -1, FLEET_MEAN, 50},
             {"more", 1, -1, FLEET_MEAN, 20}},
    .n = 6,
    .dim = {9, 4},
    .concat = true,
    .batch = 37,
    .threads = 2,
    .device = "gpu:0",
};

const fl_mirror *rows_kit_mirror(const fl_store *s, const void *here)
{
    const fl_mirror *m = s->mirrors;

    while (m && m->host != here)
        m = m->next;
    CHECK(m != NULL);
    return m;
}

const fl_table_gpu *rows_kit_there(const lookup_scene *s)
{
    const fl_mirror *m = rows_kit_mirror(s->f->store, lookup_rows(s, 0));

    return (const fl_table_gpu *)(const void *)m;
}

int64_t rows_kit_here(const lookup_scene *s)
{
    fl_rows *rows = lookup_rows(s, 0);

    return rows->methods->count(rows);
}

int64_t rows_kit_count(const lookup_scene *s)
{
    CHECK_OK(fl_store_to_host(s->f->store));
    return rows_kit_here(s);
}

void rows_kit_train(const lookup_scene *s, fleet_executor *e, int step)
{
    kit_batch *b = lookup_batch(s, step);

    CHECK_OK(kit_run(e, b));
    kit_batch_free(b);
}
