/* table_modes.c - saves of some of a table's rows, by what they were shown and
 * clicked: fleet_save_persistables_with(), fleet_save_cache_model(). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "fleet/checkpoint.h"
#include "fleet/save/table_part.h"
#include "fleet/servers.h"
#include "fleet/table/table_call.h"
#include "fleet/table/table_modes.h"

/* --- deltas, bases, days' ends -------------------------------------------- */

static fleet_status tell_saved(fleet *f, const fl_rows *r, fleet_save_mode mode)
{
    char *text = NULL;
    fleet_status status = fl_table_saved_text(r->name, mode, &text);

    if (status == FLEET_OK)
        status = fl_call_write(f, r->remote, text);
    fl_free(text);
    return status;
}

static fleet_status tell_all(fleet *f, fleet_save_mode mode)
{
    const fl_map *tables = &f->store->tables;

    for (size_t i = 0; i < tables->n; i++) {
        const fl_rows *r = tables->entry[i].value;

        if (fl_rows_has_accessor(r))
            FL_TRY(tell_saved(f, r, mode));
    }
    return FLEET_OK;
}

fleet_status fl_save_in_mode(fleet *f, const char *path,
                             const fl_scored *scored, fleet_save_mode mode)
{
    FL_TRY(fl_checkpoint_save(f, path, scored, mode));
    return mode == FLEET_SAVE_ALL ? FLEET_OK : tell_all(f, mode);
}

fleet_status fleet_save_persistables_with(fleet *f, const char *path,
                                          const fleet_save_options *o)
{
    static const char call[] = "fleet_save_persistables_with";
    fleet_save_mode mode = o ? o->mode : FLEET_SAVE_ALL;

    FL_TRY(fl_handle_check_worker(f, call));
    if (mode < FLEET_SAVE_ALL || mode > FLEET_SAVE_DAY_END)
        return fl_fail(FLEET_EINVAL, "%s: mode %d does not exist", call,
                       (int)mode);
    return fl_checkpoint_is_mine(f, call) ? fl_save_in_mode(f, path, NULL, mode)
                                          : FLEET_OK;
}

/* --- hot rows ------------------------------------------------------------- */

/* How often the rows were shown that were shown most, of all parts. */
typedef struct most_shown {
    float *show;
    size_t n, capacity;
} most_shown;

static fleet_status take_shows(const char *text, most_shown *m)
{
    fl_json *json = NULL;
    float *show = NULL;
    int64_t n = 0;
    fleet_status status = fl_json_parse(text, strlen(text), "shows", &json);
    fl_at root = fl_at_root(json), at = fl_at_key(&root, "shows");

    if (status == FLEET_OK)
        status = fl_at_words(&at, sizeof *show, &show, &n);
    if (status == FLEET_OK)
        status =
            fl_grow(&m->show, &m->capacity, m->n + (size_t)n, sizeof *m->show);
    if (status == FLEET_OK && n > 0) {
        memcpy(m->show + m->n, show, (size_t)n * sizeof *show);
        m->n += (size_t)n;
    }
    fl_json_free(json);
    fl_free(show);
    return status;
}

static fleet_status read_shows(fleet *f, const fl_rows *r, int64_t n,
                               most_shown *m)
{
    fl_answers a = {0};
    char *text = NULL;
    fleet_status status = fl_table_shows_text(r->name, n, &text);

    if (status == FLEET_OK)
        status = fl_call_read(f, r, text, &a);
    for (int i = 0; i < a.n && status == FLEET_OK; i++)
        status = take_shows(a.of[i], m);
    fl_answers_done(&a);
    fl_free(text);
    return status;
}

/* How often the row at that rate was shown. */
static fleet_status find_least(fleet *f, const fl_rows *r, double rate,
                               float *least)
{
    fleet_table_statistics stat;
    most_shown m = {0};
    fleet_status status;
    size_t n;

    FL_TRY(fleet_table_stat(f, r->name, &stat));
    n = (size_t)ceil(rate * (double)stat.rows);
    status = read_shows(f, r, (int64_t)n, &m);
    if (m.n > 1)
        qsort(m.show, m.n, sizeof *m.show, fl_most_shown_first);
    if (n > m.n) /* rows have gone meanwhile */
        n = m.n;
    *least = n > 0 ? m.show[n - 1] : 0;
    fl_free(m.show);
    return status;
}

static fleet_status save_hot(fleet *f, const char *path, double rate,
                             fl_save *s, float *least)
{
    const fl_map *tables = &f->store->tables;

    for (size_t i = 0; i < tables->n; i++) {
        fl_rows *r = tables->entry[i].value;

        if (!fl_rows_has_accessor(r))
            continue;
        FL_TRY(find_least(f, r, rate, &least[s->n_table]));
        s->table[s->n_table++] = r;
    }
    if (s->n_table == 0)
        return fl_fail(FLEET_EINVAL, "fleet_save_cache_model: no table has an "
                                     "accessor, and so none a hot row");
    s->least_shows = least;
    return fl_checkpoint_save_tables(f, s, path);
}

fleet_status fleet_save_cache_model(fleet *f, const char *path, double rate,
                                    int64_t *rows)
{
    static const char call[] = "fleet_save_cache_model";
    const double paddles = 0.00055;
    fl_save s = {.what = "cache"};
    float *least = NULL;
    fleet_status status;
    size_t n;

    if (rows)
        *rows = 0;
    FL_TRY(fl_handle_check_worker(f, call));
    if (!(rate >= 0 && rate <= 1))
        return fl_fail(FLEET_EINVAL, "%s: rate %g: expected 0 to 1", call,
                       rate);
    if (!fl_checkpoint_is_mine(f, call))
        return FLEET_OK;
    FL_TRY(fl_add_programs(f));
    n = f->store->tables.n + 1;
    FL_TRY(FL_NEW(&s.table, n * sizeof *s.table));
    status = FL_NEW(&least, n * sizeof *least);
    if (status == FLEET_OK)
        status = save_hot(f, path, rate > 0 ? rate : paddles, &s, least);
    if (status == FLEET_OK && rows)
        *rows = s.total;
    fl_free(s.table);
    fl_free(least);
    return status;
}
