/* checkpoint.c - fleet_save_persistables() and fleet_load_model(). */
#include "fleet/checkpoint.h"

#include <string.h>

#include "base/json/json_write.h"
#include "base/memory.h"
#include "fleet/job/dataset.h"
#include "fleet/job/extra.h"
#include "fleet/job/reading.h"
#include "fleet/inference.h"
#include "fleet/ranks.h"
#include "fleet/ranks_commands.h"
#include "fleet/save_part.h"
#include "fleet/servers.h"
#include "runtime/exec/executor.h"

static int64_t sum_of(const int64_t *rows, int n)
{
    int64_t sum = 0;

    for (int i = 0; i < n; i++)
        sum += rows[i];
    return sum;
}

static fleet_status write_here(fl_save *s, const char *path)
{
    fleet_status status;

    FL_TRY(FL_NEW(&s->written, ((size_t)s->n_table + 1) * sizeof *s->written));
    status = fl_save_write(s, path);
    s->total = sum_of(s->written, s->n_table);
    fl_free(s->written);
    s->written = NULL;
    return status;
}

/* Processes that have parameters or states of their own write their parts. */
static fleet_status write_parts(fleet *f, fl_save *s, const char *path)
{
    fl_save_elsewhere elsewhere = {.write = fl_save_part_collect, .arg = f};
    fleet_status status = FLEET_ENOMEM;

    if (s->elsewhere) /* the caller knows how parts are made */
        return fl_save_write(s, path);
    if (!f->worker_io && !fl_ranks_share(f))
        return write_here(s, path);
    FL_TRY(FL_NEW(&elsewhere.rows,
                  ((size_t)s->n_table + 1) * sizeof *elsewhere.rows));
    elsewhere.cuts = fl_json_array();
    s->elsewhere = &elsewhere;
    if (elsewhere.cuts)
        status = fl_save_part_write(f, s, path);
    s->elsewhere = NULL;
    s->total = sum_of(elsewhere.rows, s->n_table);
    fl_json_free(elsewhere.cuts);
    fl_free(elsewhere.rows);
    return status;
}

/* The values of a map, unless `marked` is NULL only what marked nodes read; for
 * fl_free(). */
static void *values_of(const fl_map *m, const fleet_program *p,
                       const bool *marked, int *n)
{
    void **v = fl_alloc_array(m->n, sizeof *v);

    *n = 0;
    for (size_t i = 0; v && i < m->n; i++)
        if (!marked || fl_inference_reads(p, marked, m->entry[i].name))
            v[(*n)++] = m->entry[i].value;
    return v;
}

fleet_status fl_checkpoint_write(fleet *f, fl_save *s, const fleet_program *p,
                                 const bool *marked, const char *path)
{
    fleet_status status = FLEET_ENOMEM;

    s->store = f->store;
    s->param = values_of(&f->store->params, p, marked, &s->n_param);
    s->table = values_of(&f->store->tables, p, marked, &s->n_table);
    if (s->param && s->table)
        status = write_parts(f, s, path);
    fl_free(s->param);
    fl_free(s->table);
    return status;
}

/* What fleet_save_every wants of the save at that path. */
static fl_save_link *link_of(const fleet *f, const char *path,
                             fleet_save_mode mode)
{
    const bool is_it = f->link && path && mode == FLEET_SAVE_ALL &&
                       strcmp(path, f->link_path) == 0;

    return is_it ? f->link : NULL;
}

fleet_status fl_checkpoint_save(fleet *f, const char *path,
                                const fl_scored *scored, fleet_save_mode mode)
{
    fl_json *program = NULL, *statistics = NULL, *positions = NULL;
    fl_json *reader = NULL;
    const fleet_var *label = scored ? scored->model->label : NULL;
    fl_save s = {.states = true,
                 .what = mode == FLEET_SAVE_DELTA ? "delta" : "checkpoint",
                 .mode = mode,
                 .link = link_of(f, path, mode),
                 .extra = f->extra,
                 .extra_size = f->extra_size};
    fleet_status status;

    FL_TRY(fl_add_programs(f));
    FL_TRY(fl_store_synchronize(f->store)); /* all losses are known then */
    if (s.link && !s.link->base)
        FL_TRY(fl_save_part_follow(f));
    status = fl_statistics_of(f, &statistics);
    if (status == FLEET_OK)
        status = fl_positions_save(f, &positions);
    if (status == FLEET_OK && scored)
        status = fl_prediction_json(scored->model, &program);
    if (status == FLEET_OK && scored && scored->data)
        status =
            fl_reading_save(scored->data, label ? label->name : NULL, &reader);
    s.program = program;
    s.reader = reader;
    s.statistics = statistics;
    s.positions = positions;
    if (status == FLEET_OK)
        status = fl_checkpoint_write(f, &s, NULL, NULL, path);
    fl_json_free(program);
    fl_json_free(reader);
    fl_json_free(statistics);
    fl_json_free(positions);
    return status;
}

fleet_status fl_checkpoint_save_tables(fleet *f, fl_save *s, const char *path)
{
    s->store = f->store;
    return write_parts(f, s, path);
}

fleet_status fleet_save_persistables(fleet *f, const char *path)
{
    FL_TRY(fl_handle_check_worker(f, "fleet_save_persistables"));
    if (!fl_checkpoint_is_mine(f, "fleet_save_persistables"))
        return FLEET_OK;
    return fl_checkpoint_save(f, path, NULL, FLEET_SAVE_ALL);
}

/* What the save has for datasets; s->n is 0 if it has nothing. */
static fleet_status read_statistics(fleet *f, const fl_saved *save,
                                    fl_statistics *s)
{
    fl_at root = fl_at_root(save->manifest);
    fl_at at = fl_at_key(&root, "statistics");

    if (!at.json)
        return FLEET_OK;
    FL_TRY(fl_statistics_load(s, &at));
    for (fleet_dataset *d = f->datasets; d; d = d->next)
        if (fl_dataset_standardizes(d))
            FL_TRY(fl_dataset_fits(d, s));
    return FLEET_OK;
}

/* Has it the moments of that optimizer? */
static bool has_moments(const fl_saved_item *item, const fleet_optimizer *o)
{
    const fl_rule *rule = fl_rule_of(o->kind);

    return item->n_state == rule->n_state && item->n_row == rule->n_row &&
           strcmp(item->state[0], rule->state[0]) == 0;
}

/* That of the table into which the saved one goes; NULL: none. */
static const fleet_optimizer *optimizer_of(const fleet *f, const fl_saved *s,
                                           const fl_load_how *how,
                                           const fl_saved_item *item)
{
    const fl_rows *rows = fl_saved_target(s, f->store, how, item);

    return rows && f->store->optimizer
               ? fl_rows_optimizer(f->store->optimizer, rows)
               : NULL;
}

/* Do Adam's rows of the saved table go on with another count than they were
 * trained with? */
static bool counts_otherwise(const fleet *f, const fl_saved *s,
                             const fl_load_how *how, const fl_saved_item *item)
{
    const fleet_optimizer *o = optimizer_of(f, s, how, item);

    return o && fl_optimizer_has_moments(o) && has_moments(item, o) &&
           item->row_steps != fl_optimizer_has_row_steps(o);
}

static void note_row_steps(fleet *f, const fl_saved *s, const fl_load_how *how)
{
    const fl_saved_item *item = s->table;
    bool was;

    while (item < s->table + s->n_table && !counts_otherwise(f, s, how, item))
        item++;
    if (!fleet_is_first_worker(f) || item == s->table + s->n_table)
        return;
    was = item->row_steps;
    FL_WARN(&f->context.log,
            "load: %s: \"%s\": %s: row_steps is %s in the save, %s in this "
            "program: the bias corrections of its rows now follow %s",
            s->folder.path, item->name,
            fl_rule_of(optimizer_of(f, s, how, item)->kind)->name,
            was ? "true" : "false", was ? "false" : "true",
            was ? "the number of the update"
                : "the number of the row's own updates");
}

/* A load that this process takes part in. */
typedef struct loading {
    fleet *f;
    const fl_load_how *how;
} loading;

/* What of a save is neither the store's nor a dataset's. */
typedef struct rest {
    fl_statistics statistics;
    fl_saved_position *position;
    int n_position;
    void *extra;
    size_t extra_size;
} rest;

static void done_rest(rest *r)
{
    fl_statistics_done(&r->statistics);
    fl_positions_done(r->position, r->n_position);
    fl_free(r->extra);
}

static fleet_status read_rest(const loading *l, const fl_saved *s, rest *r)
{
    fl_at root = fl_at_root(s->manifest);
    fl_at positions = fl_at_key(&root, "positions");
    fl_at extra = fl_at_key(&root, "extra");

    FL_TRY(read_statistics(l->f, s, &r->statistics));
    if (l->how->o.position == FLEET_POSITION_RESUME)
        FL_TRY(fl_positions_read(&positions, &r->position, &r->n_position));
    return fl_extra_read(&extra, &r->extra, &r->extra_size);
}

/* For datasets to come, and the user. */
static fleet_status take_rest(const loading *l, rest *r)
{
    const bool begins =
        r->n_position > 0 || l->how->o.position == FLEET_POSITION_ANEW;
    fleet *f = l->f;

    for (fleet_dataset *d = f->datasets; r->statistics.n > 0 && d; d = d->next)
        if (fl_dataset_standardizes(d))
            FL_TRY(fl_dataset_set_statistics(d, &r->statistics));
    fl_statistics_done(&f->loaded);
    f->loaded = r->statistics;
    r->statistics = (fl_statistics){0};
    fl_extra_set(f, r->extra, r->extra_size);
    r->extra = NULL;
    if (fl_positions_pass(f)) /* called by on_batch: the pass stays its own */
        return FLEET_OK;
    fl_positions_set(f, r->position, r->n_position, begins);
    r->position = NULL;
    r->n_position = 0;
    return FLEET_OK;
}

static fleet_status load_save(void *arg, fl_saved *s)
{
    const loading *l = arg;
    rest r = {.n_position = 0};
    fleet *f = l->f;
    const fl_bucket_set own =
        f->role.collective ? fl_ranks_own(f) : fl_bucket_range(0, FL_N_BUCKET);
    fleet_status status;

    if (!l->how->table)
        FL_GOTO(done, read_rest(l, s, &r));
    f->loads = true;
    FL_GOTO(done, fl_saved_apply(s, f->store, &own, l->how));
    note_row_steps(f, s, l->how);
    if (fleet_is_first_worker(f))
        fl_saved_note(s, f->store, l->how);
    status = l->how->table ? FLEET_OK : take_rest(l, &r);
done:
    done_rest(&r);
    return status;
}

/* Of workers, the first one alone tells the servers; all wait until they have
 * loaded. Before they are connected, that is left to fleet_init_worker(). */
static fleet_status load_on_servers(fleet *f, const char *path,
                                    const fl_load_how *how)
{
    char *text = NULL;
    fleet_status status;

    FL_TRY(fl_save_part_load_text(path, how, &text));
    if (fl_worker_io_is_open(f->worker_io)) {
        status = fl_worker_io_load(f->worker_io,
                                   fleet_is_first_worker(f) ? text : NULL);
        if (status == FLEET_OK)
            f->store->updates = fl_worker_io_remote(f->worker_io)->updates;
    } else {
        fl_text_add(&f->load, "%s\n", text);
        status = f->load.status;
    }
    fl_free(text);
    return status;
}

fleet_status fl_checkpoint_load_here(fleet *f, const char *path,
                                     const fl_load_how *how)
{
    loading l = {f, how};

    if (f->comm && f->role.worker_num > 1)
        return fl_fail(FLEET_ESTATE,
                       "fleet_load_model: ranks load before "
                       "fleet_init_worker(), which sees to it that all have "
                       "the same");
    FL_TRY(fl_add_programs(f));
    return fl_saved_use(path, fl_load_how_what(how), load_save, &l);
}

/* Have they anything of what is loaded? */
static bool on_servers(const fleet *f, const fl_load_how *how)
{
    return f->worker_io &&
           (!how->table || fl_store_rows(f->store, how->table)->remote);
}

fleet_status fl_checkpoint_load(fleet *f, const char *path,
                                const fl_load_how *how)
{
    fleet_status status = fl_checkpoint_load_here(f, path, how);

    if (status != FLEET_OK && fl_has_ranks(f) && f->role.worker_num > 1)
        return fl_fail_in(status, "rank %d of %d", f->role.index,
                          f->role.worker_num);
    FL_TRY(status);
    return on_servers(f, how) ? load_on_servers(f, path, how) : FLEET_OK;
}

fleet_status fleet_load_model(fleet *f, const char *path)
{
    FL_TRY(fl_handle_check_worker(f, "fleet_load_model"));
    return fl_checkpoint_load(f, path, &(fl_load_how){0});
}

fleet_status fleet_load_model_with(fleet *f, const char *path,
                                   const fleet_load_options *o)
{
    fl_load_how how = {0};

    FL_TRY(fl_handle_check_worker(f, "fleet_load_model_with"));
    if (o)
        how.o = *o;
    FL_TRY(fl_load_options_check(&how.o));
    return fl_checkpoint_load(f, path, &how);
}

bool fl_checkpoint_is_mine(fleet *f, const char *call)
{
    if (fleet_is_first_worker(f))
        return true;
    FL_INFO(&f->context.log, "%s: worker %d leaves it to worker 0", call,
            fleet_worker_index(f));
    return false;
}
