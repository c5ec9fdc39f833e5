/* sim_save.c - see sim_save.h. */
#define SUITE sim_kit
#include "sim_save.h"
#include "sim_disk.h"
#include "sim_job_internal.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

#include "base/json/json_write.h"
#include "base/memory.h"
#include "fleet/save/load_into.h"
#include "fleet/save_part.h"
#include "runtime/store/table.h"

enum { MOST_ITEM = 16 };

/* The values of a map. */
static int list_values(const fl_map *m, void **v)
{
    CHECK(m->n <= MOST_ITEM);
    for (size_t i = 0; i < m->n; i++)
        v[i] = m->entry[i].value;
    return (int)m->n;
}

static fleet_status save(fl_store *store, fl_save_elsewhere *elsewhere,
                         const char *path)
{
    void *param[MOST_ITEM], *table[MOST_ITEM];
    fl_save s = {.store = store,
                 .param = (fl_param **)(void *)param,
                 .table = (fl_rows **)(void *)table,
                 .states = true,
                 .what = "checkpoint",
                 .elsewhere = elsewhere};

    s.n_param = list_values(&store->params, param);
    s.n_table = list_values(&store->tables, table);
    return fl_save_write(&s, path);
}

/* As fl_save_part_collect() does it. */
static fleet_status collect(void *arg, const fl_save *s, const char *folder,
                            fl_json *list)
{
    sim_worker *w = arg;
    char *answer[SIM_MOST_LANE] = {NULL}, *text;
    fleet_status status;

    FL_TRY(fl_save_part_request(s, folder, &text));
    status = fl_worker_command(&w->core, FL_COMMAND_SAVE, text, answer);
    fl_free(text);
    for (int i = 0; i < w->core.n_lane; i++) {
        if (status == FLEET_OK)
            status = fl_save_part_answer(s, answer[i], list);
        fl_free(answer[i]);
    }
    return status;
}

fleet_status sim_save_job(sim_worker *w, const char *path)
{
    int64_t rows[MOST_ITEM] = {0};
    fl_save_elsewhere elsewhere = {
        .write = collect, .arg = w, .rows = rows, .cuts = fl_json_array()};
    fleet_status status = FLEET_ENOMEM;

    if (elsewhere.cuts)
        status = save(w->store, &elsewhere, path);
    fl_json_free(elsewhere.cuts);
    return status;
}

fleet_status sim_save_store(fl_store *s, const char *path)
{
    return save(s, NULL, path);
}

static fleet_status load(void *arg, fl_saved *s)
{
    const fl_bucket_set all = fl_bucket_range(0, FL_N_BUCKET);

    return fl_saved_apply(s, arg, &all, &(fl_load_how){0});
}

fleet_status sim_load_store(fl_store *s, const char *path)
{
    return fl_saved_use(path, "checkpoint", load, s);
}

/* --- what a script says --------------------------------------------------- */

int sim_last_saved(const sim_script *k, int pass)
{
    while (pass >= 0 && !k->saved[pass])
        pass--;
    return pass;
}

bool sim_loads_after(const sim_script *k, int pass)
{
    return sim_disk_act_after(k, pass) == SIM_FROM_DISK &&
           k->leaves_in[0] > pass && sim_last_saved(k, pass) >= 0;
}

void sim_twin_path(const sim_script *k, int pass, char path[300])
{
    snprintf(path, 300, "%s-%d", k->twin, pass);
}

/* It becomes full while the save is written, or cannot be flushed. */
static void spoil_disk(const sim_script *k, int pass)
{
    uint64_t luck = sim_hash(k->seed, 500, (uint64_t)pass, 0, 0);

    if (luck & 1)
        sim_disk_fill((luck >> 8) % 6000);
    else
        sim_disk_fail_flush(1 + (int)(luck >> 8) % 12);
}

/* A save that cannot be written is named, and training goes on. */
static fleet_status save_job(sim_worker *w, sim_script *k, int pass)
{
    fleet_status status;

    k->begun[pass] = true;
    status = sim_save_job(w, k->path);
    sim_disk_mend();
    k->in_doubt[pass] =
        status != FLEET_OK && strstr(fleet_last_error(), "is in place") != NULL;
    k->saved[pass] = status == FLEET_OK || k->in_doubt[pass];
    if (status == FLEET_OK || w->dying)
        return status;
    sim_note(w, "not saved\n");
    if (status != FLEET_EIO || !strstr(fleet_last_error(), k->path))
        return status;
    return fl_client_status(w->client);
}

const char *sim_load_text(const char *path, char text[400])
{
    snprintf(text, 400, "{\"path\":\"%s\"}", path);
    return text;
}

fleet_status sim_load_job(sim_worker *w, const sim_script *k)
{
    char text[400];

    return fl_worker_command(&w->core, FL_COMMAND_LOAD,
                             sim_load_text(k->path, text), NULL);
}

/* Nobody trains while it is written: all know what is saved. */
static fleet_status save_between(sim_worker *w, sim_script *k, int pass)
{
    FL_TRY(fl_worker_barrier(&w->core));
    if (w->index == 0 && sim_disk_act_after(k, pass) == SIM_TO_BAD_DISK)
        spoil_disk(k, pass);
    if (w->index == 0)
        FL_TRY(save_job(w, k, pass));
    return fl_worker_barrier(&w->core);
}

fleet_status sim_use_disk(sim_worker *w, sim_script *k, int pass)
{
    char text[400];

    switch (sim_disk_act_after(k, pass)) {
    case SIM_TO_BAD_DISK:
    case SIM_TO_DISK:
        return save_between(w, k, pass);
    case SIM_FROM_DISK:
        return sim_loads_after(k, pass)
                   ? fl_worker_load(&w->core, w->index == 0
                                                  ? sim_load_text(k->path, text)
                                                  : NULL)
                   : FLEET_OK;
    default:
        return FLEET_OK;
    }
}

/* --- comparing ------------------------------------------------------------ */

bool sim_same_block(const fl_param *p, const fl_param *q, int64_t block)
{
    int64_t at = fl_block_offset(p, block), want = fl_block_offset(q, block);
    size_t bytes = (size_t)fl_block_size(p, block) * sizeof(float);

    if (memcmp(p->flat->weight + at, q->flat->weight + want, bytes) != 0)
        return false;
    for (int i = 0; i < FL_MAX_STATE; i++)
        if (p->flat->state[i] && memcmp(p->flat->state[i] + at,
                                        q->flat->state[i] + want, bytes) != 0)
            return false;
    return true;
}

typedef struct row_search {
    fl_rows *in;
    bool all;
} row_search;

static fleet_status find_row(void *arg, int bucket, uint64_t key,
                             const float *row)
{
    const fl_row_head *head = (const fl_row_head *)(const void *)row - 1;
    row_search *r = arg;
    size_t n = (size_t)(r->in->dim + fl_rows_floats(r->in));
    float *same;

    (void)bucket;
    CHECK_OK(r->in->methods->find(r->in, &key, 1, &same));
    r->all = r->all && same && memcmp(same, row, n * sizeof *row) == 0 &&
             fl_row_of(same)->step == head->step;
    return FLEET_OK;
}

static bool same_rows(const fl_rows *a, fl_rows *b)
{
    row_search r = {b, true};

    CHECK_OK(a->methods->each(a, find_row, &r));
    return r.all && a->methods->count(a) == b->methods->count(b);
}

bool sim_same_store(const fl_store *a, const fl_store *b)
{
    bool same = a->updates == b->updates;

    for (size_t i = 0; i < a->params.n && same; i++) {
        const fl_param *p = a->params.entry[i].value;

        for (int64_t k = 0; k < fl_blocks_of(p) && same; k++)
            same = sim_same_block(p, fl_store_param(b, p->name), k);
    }
    for (size_t i = 0; i < a->tables.n && same; i++) {
        const fl_rows *rows = a->tables.entry[i].value;

        same = same_rows(rows, fl_store_rows(b, rows->name));
    }
    return same;
}
