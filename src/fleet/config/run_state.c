/* run_state.c - a training's state in a checkpoint, and out of it. */
#include "fleet/config/run_state.h"

#include <string.h>

#include "base/json/json_write.h"
#include "fleet/job/dataset.h"

#define KEY "fleet_train"

/* Whole numbers of it, by their names. */
static const struct {
    const char *key;
    size_t at;
} whole[] = {
    {"step", offsetof(fl_run_state, step)},
    {"pass", offsetof(fl_run_state, pass)},
    {"batch", offsetof(fl_run_state, batch)},
    {"samples", offsetof(fl_run_state, samples)},
    {"since_validation", offsetof(fl_run_state, since)},
    {"metric", offsetof(fl_run_state, metric)},
    {"bad", offsetof(fl_run_state, bad)},
    {"lines", offsetof(fl_run_state, line.n)},
    {"line_step", offsetof(fl_run_state, line.step)},
    {"line_loss_samples", offsetof(fl_run_state, line.loss_samples)},
};

enum { N_WHOLE = sizeof whole / sizeof *whole };

static int64_t *whole_of(fl_run_state *s, int i)
{
    return (int64_t *)(void *)((char *)s + whole[i].at);
}

/* --- put ------------------------------------------------------------------ */

static fleet_status put_double(fl_json *to, const char *key, double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof bits);
    return fl_json_put(to, key, fl_json_hex(bits));
}

static fleet_status put_all(fl_run_state *s, fl_json *to)
{
    for (int i = 0; i < N_WHOLE; i++)
        FL_TRY(fl_json_put(to, whole[i].key, fl_json_int(*whole_of(s, i))));
    FL_TRY(put_double(to, "best", s->best));
    FL_TRY(put_double(to, "beats", s->beats));
    FL_TRY(put_double(to, "line_loss_sum", s->line.loss_sum));
    return fl_json_put(to, "run", fl_json_hex(s->run));
}

fleet_status fl_run_state_put(fl_config_run *t)
{
    fl_json *json, *inner;
    fleet_status status;
    char *text;

    if (!t->keeps_seen)
        return FLEET_OK;
    t->seen.pass = t->train->at.pass;
    t->seen.batch = t->train->at.batch;
    json = fl_json_object();
    inner = fl_json_object();
    status = fl_json_put(json, KEY, inner);
    if (status == FLEET_OK)
        status = put_all(&t->seen, inner);
    text = status == FLEET_OK ? fl_json_print(json, false) : NULL;
    fl_json_free(json);
    FL_TRY(status);
    status = text ? fleet_extra_set(t->f, text, strlen(text)) : FLEET_ENOMEM;
    fleet_free(text);
    return status;
}

/* --- taken ---------------------------------------------------------------- */

static fleet_status take_double(const fl_at *from, const char *key, double *x)
{
    fl_at at = fl_at_key(from, key);
    uint64_t bits;

    FL_TRY(fl_at_hex(&at, &bits));
    memcpy(x, &bits, sizeof bits);
    return FLEET_OK;
}

static fleet_status take_all(const fl_at *from, fl_run_state *s)
{
    fl_at run = fl_at_key(from, "run");

    for (int i = 0; i < N_WHOLE; i++) {
        fl_at at = fl_at_key(from, whole[i].key);

        FL_TRY(fl_at_int(&at, 0, FL_MOST_EXACT, whole_of(s, i)));
    }
    FL_TRY(take_double(from, "best", &s->best));
    FL_TRY(take_double(from, "beats", &s->beats));
    FL_TRY(take_double(from, "line_loss_sum", &s->line.loss_sum));
    return fl_at_hex(&run, &s->run);
}

fleet_status fl_run_state_read(const void *extra, size_t size, fl_run_state *s)
{
    fl_json *json = NULL;
    fleet_status status = fl_json_parse(extra, size, "extra", &json);
    fl_run_state found = {0};
    fl_at root, at;

    if (status == FLEET_ECONFIG) {
        fl_error_clear();
        return FLEET_OK;
    }
    FL_TRY(status);
    root = fl_at_root(json);
    at = fl_at_key(&root, KEY);
    if (at.json)
        status = take_all(&at, &found);
    if (at.json && status == FLEET_OK)
        *s = found;
    fl_json_free(json);
    return status;
}

fleet_status fl_run_state_take(fl_config_run *t, bool *known)
{
    size_t size;
    const void *extra = fleet_extra_get(t->f, &size);
    fl_run_state s = {.line = {.n = -1}};
    fleet_status status;

    *known = false;
    t->keeps_seen = t->c->validates || t->c->metrics_log || t->c->tensorboard;
    if (!extra)
        return FLEET_OK;
    status = fl_run_state_read(extra, size, &s);
    if (status != FLEET_OK)
        return fl_fail_in(FLEET_ECORRUPT, "%s: extra", t->load);
    if (s.line.n < 0)
        return FLEET_OK;
    if (t->load_options.position != FLEET_POSITION_RESUME)
        return fleet_extra_set(t->f, NULL, 0);
    t->seen = s;
    *known = t->keeps_seen = true;
    return FLEET_OK;
}
