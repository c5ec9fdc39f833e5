/* statistics.c - statistics: room for them, copies, and their JSON. */
#include "data/layout/statistics.h"

#include <string.h>

#include "base/json/json_write.h"
#include "base/memory.h"

fleet_status fl_statistics_create(fl_statistics *s, int n)
{
    *s = (fl_statistics){.n = n};
    s->mean = fl_alloc_array((size_t)n, sizeof *s->mean);
    s->deviation = fl_alloc_array((size_t)n, sizeof *s->deviation);
    if (s->mean && s->deviation)
        return FLEET_OK;
    fl_statistics_done(s);
    return FLEET_ENOMEM;
}

fleet_status fl_statistics_copy(fl_statistics *s, const fl_statistics *from)
{
    const size_t size = (size_t)from->n * sizeof(double);

    FL_TRY(fl_statistics_create(s, from->n));
    memcpy(s->mean, from->mean, size);
    memcpy(s->deviation, from->deviation, size);
    return FLEET_OK;
}

void fl_statistics_done(fl_statistics *s)
{
    fl_free(s->mean);
    fl_free(s->deviation);
    *s = (fl_statistics){0};
}

/* --- as JSON: {"mean": [...], "deviation": [...]}, exactly ---------------- */

static fleet_status put_array(fl_json *object, const char *key, const double *x,
                              int n)
{
    fl_json *array = fl_json_array();

    for (int i = 0; i < n; i++)
        if (fl_json_append(array, fl_json_double(x[i], 17)) != FLEET_OK) {
            fl_json_free(array);
            return FLEET_ENOMEM;
        }
    return fl_json_put(object, key, array);
}

fleet_status fl_statistics_save(const fl_statistics *s, fl_json **json)
{
    fl_json *object = fl_json_object();
    fleet_status status = put_array(object, "mean", s->mean, s->n);

    if (status == FLEET_OK)
        status = put_array(object, "deviation", s->deviation, s->n);
    if (status != FLEET_OK) {
        fl_json_free(object);
        return status;
    }
    *json = object;
    return FLEET_OK;
}

static fleet_status get_array(const fl_at *at, double low, double *x, int n)
{
    if (fl_at_count(at) != n)
        return fl_at_expected(at, "as many numbers as there are means");
    for (fl_at e = fl_at_first(at); e.json; fl_at_next(at, &e))
        FL_TRY(fl_at_double(&e, low, 1.7e308, &x[e.index]));
    return FLEET_OK;
}

fleet_status fl_statistics_load(fl_statistics *s, const fl_at *at)
{
    static const char *const keys[] = {"mean", "deviation", NULL};
    fl_at mean = fl_at_key(at, "mean"), deviation = fl_at_key(at, "deviation");
    fleet_status status;

    *s = (fl_statistics){0};
    FL_TRY(fl_at_required(at));
    FL_TRY(fl_at_keys(at, keys));
    FL_TRY(fl_at_required(&mean));
    FL_TRY(fl_at_required(&deviation));
    FL_TRY(fl_at_array(&mean));
    FL_TRY(fl_at_array(&deviation));
    FL_TRY(fl_statistics_create(s, fl_at_count(&mean)));
    status = get_array(&mean, -1.7e308, s->mean, s->n);
    if (status == FLEET_OK)
        status = get_array(&deviation, 5e-324, s->deviation, s->n);
    if (status != FLEET_OK)
        fl_statistics_done(s);
    return status;
}
