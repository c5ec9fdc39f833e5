/* table_saves.c - one table saved, loaded, exported and imported. */
#include <stdio.h>
#include <string.h>

#include "base/file/file_writer.h"
#include "base/folder.h"
#include "base/memory.h"
#include "fleet/checkpoint.h"
#include "fleet/save_part.h"
#include "fleet/servers.h"
#include "fleet/table/table_call.h"
#include "fleet/table/table_text.h"
#include "runtime/store/table.h"

static fleet_status save_table(fleet *f, fl_rows *rows, const char *path)
{
    fl_save s = {.table = &rows, .n_table = 1, .states = true, .what = "table"};

    return fl_checkpoint_save_tables(f, &s, path);
}

fleet_status fleet_save_one_table(fleet *f, const char *table, const char *path)
{
    fl_rows *rows;

    FL_TRY(fl_call_table(f, "fleet_save_one_table", table, &rows));
    if (!fl_checkpoint_is_mine(f, "fleet_save_one_table"))
        return FLEET_OK;
    return save_table(f, rows, path);
}

/* --- load ----------------------------------------------------------------- */

/* A load of one table by all workers, when the servers are connected. */
typedef struct table_load {
    fleet *f;
    char *text; /* what the servers are told */
} table_load;

static fleet_status tell_servers(void *arg)
{
    const table_load *l = arg;

    return fl_worker_io_command(l->f->worker_io, FL_COMMAND_LOAD, l->text,
                                NULL);
}

/* The first worker's load is all workers'. */
static fleet_status load_together(fleet *f, const char *call, const char *path,
                                  const fl_load_how *how, fleet_status mine)
{
    table_load l = {.f = f};
    fleet_status status = mine;

    if (status == FLEET_OK && fleet_is_first_worker(f)) {
        status = fl_checkpoint_load_here(f, path, how);
        if (status == FLEET_OK)
            status = fl_save_part_load_text(path, how, &l.text);
    }
    status = fl_call_together(f, call, how->table, status, tell_servers, &l);
    fl_free(l.text);
    return status;
}

/* What is wrong with one worker's call is an error of all: of a table that it
 * does not know, too. */
static bool is_together(const fleet *f, const fl_rows *rows)
{
    return f->worker_io && fl_worker_io_is_open(f->worker_io) &&
           (!rows || rows->remote);
}

fleet_status fleet_load_one_table(fleet *f, const char *table, const char *path,
                                  const fleet_load_table_options *o)
{
    const fleet_load_table_options none = {0};
    fl_load_how how = {.table = table};
    fl_rows *rows = NULL;
    fleet_status status;

    FL_TRY(fl_handle_check_writer(f, "fleet_load_one_table"));
    status = fl_call_table(f, "fleet_load_one_table", table, &rows);
    o = o ? o : &none;
    how.o = (fleet_load_options){.states = o->states, .restart = o->restart};
    how.source = o->source;
    how.o.keep_rows = o->keep_rows != 0;
    how.wider = o->wider != 0;
    if (status == FLEET_OK)
        status = fl_load_options_check(&how.o);
    if (is_together(f, rows))
        return load_together(f, "fleet_load_one_table", path, &how, status);
    return status == FLEET_OK ? fl_checkpoint_load(f, path, &how) : status;
}

/* --- export --------------------------------------------------------------- */

static char *path_with(const char *path, const char *ending)
{
    fl_text t = {0};

    fl_text_add(&t, "%s%s", path, ending);
    if (t.status == FLEET_OK)
        return t.chars;
    fl_text_done(&t);
    return NULL;
}

/* The text is written into the folder of the save that it is made of. */
typedef struct table_export {
    const char *path, *folder;
    fl_table_text_kind kind;
} table_export;

static const char text_name[] = "part-text";

static fleet_status write_text(void *arg, fl_saved *s)
{
    const table_export *e = arg;
    uint64_t size, hash;
    fl_writer w;
    fleet_status status = fl_writer_open(&w, e->folder, text_name), closed;

    if (status == FLEET_OK)
        status = fl_table_text_write(s, e->kind, &w);
    closed = fl_writer_close(&w, &size, &hash);
    return status == FLEET_OK ? closed : status;
}

/* The file and its folder are on the disk. */
static fleet_status put_in_place(const table_export *e)
{
    char *text = fl_path_join(e->folder, text_name);
    fleet_status status = text ? fl_file_replace(text, e->path) : FLEET_ENOMEM;

    fl_free(text);
    return status;
}

static fleet_status export_rows(fleet *f, fl_rows *rows, table_export *e)
{
    fleet_status status = save_table(f, rows, e->folder);

    FL_TRY(status);
    status = fl_saved_use(e->folder, "table", write_text, e);
    if (status == FLEET_OK)
        status = put_in_place(e);
    fl_folder_remove(e->folder);
    return status;
}

fleet_status fleet_export_table(fleet *f, const char *table, const char *path,
                                const fleet_export_options *o)
{
    table_export e = {.path = path,
                      .kind = o && o->states   ? FL_TEXT_STATES
                              : o && o->counts ? FL_TEXT_COUNTS
                                               : FL_TEXT_WEIGHTS};
    fl_rows *rows;
    char *folder;
    fleet_status status;

    FL_TRY(fl_call_table(f, "fleet_export_table", table, &rows));
    if (!path || !*path)
        return fl_fail(FLEET_EINVAL, "fleet_export_table: there is no path");
    if (o && o->counts && !fl_rows_has_accessor(rows))
        return fl_fail(FLEET_EINVAL,
                       "fleet_export_table: counts: table \"%s\" has no "
                       "life.accessor",
                       table);
    if (!fl_checkpoint_is_mine(f, "fleet_export_table"))
        return FLEET_OK;
    folder = path_with(path, ".exporting");
    e.folder = folder;
    status = folder ? export_rows(f, rows, &e) : FLEET_ENOMEM;
    fl_free(folder);
    return status == FLEET_OK ? status : fl_fail_in(status, "export");
}

/* --- import --------------------------------------------------------------- */

/* The text, read into a store of its own, which is then saved. */
typedef struct table_import {
    fleet *f;
    const fl_rows *into;
    fl_store *store;
    fl_rows *rows; /* of that store */
    fl_life life;  /* of these: an accessor, if the text has what one counts */
    fleet_optimizer *optimizer;
    bool saved; /* the folder is one that it has made */
    fl_load_how how;
} table_import;

/* A rule with these states, in this order. */
static fleet_status find_rule(const fl_table_text_head *h, fl_rule_kind *kind)
{
    for (int k = 0; k < FL_N_RULE; k++) {
        const fl_rule *rule = fl_rule_of((fl_rule_kind)k);
        bool same = rule->n_state == h->n_state && rule->n_row == h->n_row;

        for (int i = 0; same && i < h->n_state + h->n_row; i++)
            same = strcmp(rule->state[i], h->state[i]) == 0;
        *kind = (fl_rule_kind)k;
        if (same)
            return FLEET_OK;
    }
    return fl_fail(FLEET_EFORMAT, "no optimizer has these states in this "
                                  "order");
}

/* States of a text that has none begin anew. */
static fleet_status begin_import(table_import *t, const fl_table_text_head *h)
{
    const float numbers[FL_MAX_NUMBER] = {0};
    fl_filler filler = t->into->filler;
    fl_rule_kind kind;

    FL_TRY(find_rule(h, &kind));
    FL_TRY(fl_store_create(&t->f->context, fl_table_make, &t->store));
    FL_TRY(fl_table_make(t->into->name, h->dim, 0, &filler, &t->rows));
    if (fl_map_put(&t->store->tables, t->into->name, t->rows) != FLEET_OK) {
        t->rows->methods->destroy(t->rows);
        return FLEET_ENOMEM;
    }
    t->optimizer = fl_optimizer_create(&t->f->context, kind, 1, numbers);
    FL_TRY(t->optimizer ? FLEET_OK : FLEET_ENOMEM);
    t->store->optimizer = t->optimizer; /* its rows have none of their own */
    if (!h->states)
        t->how.o.states = FLEET_STATES_INITIALIZE;
    if (h->accessor) {
        t->life.o.accessor.kind = FLEET_CTR_ACCESSOR;
        t->rows->life = &t->life;
    }
    return t->rows->methods->set_state(
        t->rows, h->n_state, h->n_row + (h->accessor ? FL_N_ACCESSOR : 0), 0);
}

static fleet_status import_row(void *arg, const fl_table_text_head *h,
                               const fl_table_text_row *row)
{
    table_import *t = arg;
    float *to = NULL;

    if (!row)
        return begin_import(t, h);
    FL_TRY(t->rows->methods->find(t->rows, &row->key, 1, &to));
    if (to)
        return fl_fail(FLEET_EFORMAT, "the key %llu stands twice",
                       (unsigned long long)row->key);
    FL_TRY(t->rows->methods->make(t->rows, &row->key, 1, &to));
    memcpy(to, row->values, (size_t)fl_table_text_width(h) * sizeof *to);
    fl_row_of(to)->step = row->step;
    return FLEET_OK;
}

static void done_import(table_import *t)
{
    if (t->store)
        fl_store_destroy(t->store);
    fl_optimizer_destroy(t->optimizer);
    t->store = NULL;
    t->optimizer = NULL;
}

/* Its save is there afterwards, its rows not any more. */
static fleet_status read_import(table_import *t, const char *path,
                                const char *folder)
{
    fleet_status status = fl_table_text_read(path, import_row, t);
    fl_save s = {
        .table = &t->rows, .n_table = 1, .states = true, .what = "table"};

    s.store = t->store;
    if (status == FLEET_OK)
        status = fl_save_write(&s, folder);
    t->saved = status == FLEET_OK;
    done_import(t);
    return t->saved ? status : fl_fail_in(status, "fleet_import_table");
}

/* Ranks import each for itself. */
static char *import_folder(const fleet *f, const char *path, const char *where)
{
    const char *name = strrchr(path, '/');
    bool beside = !where || !*where;
    fl_text t = {0};

    name = name ? name + 1 : path;
    if (beside)
        fl_text_add(&t, "%s.importing", path);
    else
        fl_text_add(&t, "%s/%s.importing", where, name);
    if (!f->worker_io && f->role.worker_num > 1)
        fl_text_add(&t, "-%d", f->role.index);
    if (t.status == FLEET_OK)
        return t.chars;
    fl_text_done(&t);
    return NULL;
}

static fleet_status check_import(const fleet *f, const fl_rows *rows,
                                 const char *path, const fl_load_how *how)
{
    FL_TRY(fl_load_options_check(&how->o));
    if (!path || !*path)
        return fl_fail(FLEET_EINVAL, "fleet_import_table: there is no path");
    if (rows->remote && !fl_worker_io_is_open(f->worker_io))
        return fl_fail(FLEET_ESTATE,
                       "fleet_import_table: the rows of \"%s\" are on "
                       "servers: call fleet_init_worker() first",
                       rows->name);
    if (!rows->remote && f->comm && f->role.worker_num > 1)
        return fl_fail(FLEET_ESTATE, "fleet_import_table: ranks import before "
                                     "fleet_init_worker()");
    return FLEET_OK;
}

static fleet_status import_rows(table_import *t, const char *path,
                                const char *folder, fleet_status status)
{
    bool together = is_together(t->f, t->into);

    if (status == FLEET_OK && (!together || fleet_is_first_worker(t->f)))
        status = read_import(t, path, folder);
    if (together)
        status =
            load_together(t->f, "fleet_import_table", folder, &t->how, status);
    else if (status == FLEET_OK)
        status = fl_checkpoint_load(t->f, folder, &t->how);
    return status;
}

static void take_options(table_import *t, const fleet_import_options *o)
{
    t->how.own_filler = true;
    if (!o)
        return;
    t->how.o.states = o->states;
    t->how.o.keep_rows = o->keep_rows != 0;
    t->how.wider = o->wider != 0;
}

fleet_status fleet_import_table(fleet *f, const char *table, const char *path,
                                const fleet_import_options *o)
{
    table_import t = {.f = f, .how = {.table = table}};
    fl_rows *rows = NULL;
    char *folder = NULL;
    fleet_status status;

    FL_TRY(fl_handle_check_writer(f, "fleet_import_table"));
    status = fl_call_table(f, "fleet_import_table", table, &rows);
    t.into = rows;
    take_options(&t, o);
    if (status == FLEET_OK)
        status = check_import(f, rows, path, &t.how);
    if (status == FLEET_OK) {
        folder = import_folder(f, path, o ? o->folder : NULL);
        status = folder ? FLEET_OK : FLEET_ENOMEM;
    }
    status = import_rows(&t, path, folder, status);
    if (t.saved)
        fl_folder_remove(folder);
    fl_free(folder);
    return status;
}
