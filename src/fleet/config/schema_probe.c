/* schema_probe.c - configurations of each format, model, rule and schedule. A
 * key that is absent is asked for, too, but not what is in an object or an
 * array that is absent: they have these. */
#include "fleet/config/schema_probe.h"

#include <string.h>

#include "base/text.h"
#include "fleet/config/models.h"
#include "runtime/optim/rule.h"
#include "runtime/optim/schedule.h"

/* One form of what has two: a path or an object, a text or an array. */
static const char csv[] =
    "\"model\":{\"type\":\"wide_deep\",\"hidden\":[8],\"ps\":{\"a\":true},"
    "\"accessor\":{\"type\":\"ctr\",\"show\":\"s\",\"click\":\"y\"}},"
    "\"dataset\":{\"format\":\"csv\",\"header\":true,\"train\":[\"a\"],"
    "\"test\":[\"a\"],\"validation\":[\"a\"],\"items\":[\"a\"]},"
    "\"metrics\":[\"recall@10\"],\"slots\":["
    "{\"name\":\"y\",\"type\":\"float\",\"role\":\"label\",\"columns\":[0],"
    "\"transform\":\"equals\",\"value\":[\"a\"]},"
    "{\"name\":\"s\",\"type\":\"float\",\"columns\":[\"a\"],"
    "\"transform\":[\"log1p\"]},"
    "{\"name\":\"u\",\"type\":\"uint64\",\"columns\":[\"a\"],\"ps\":true},"
    "{\"name\":\"b\",\"type\":\"uint64\",\"from\":[\"s\"],"
    "\"buckets\":[0]}],"
    "\"save\":{\"path\":\"a\"},\"load\":{\"path\":\"a\"},"
    "\"validate_every\":{},\"metrics_log\":{\"path\":\"b\"}";

static const char multislot[] =
    "\"dataset\":{\"format\":\"multislot\",\"train\":[\"a\"]},"
    "\"save\":\"a\",\"load\":\"a\",\"metrics_log\":{\"tensorboard\":\"b\"},"
    "\"save_every\":{},\"deadlines\":{},\"trainer\":{},\"strategy\":{}";

static const char criteo[] =
    "\"model\":{\"type\":\"ctr_dnn\"},\"dataset\":{\"format\":\"criteo\","
    "\"train\":[\"a\"]},\"metrics_log\":\"b\"";

/* Columns have names, or the slot's. */
static const char parquet[] =
    "\"model\":{\"type\":\"deepfm\"},\"dataset\":{\"format\":\"parquet\","
    "\"missing\":\"?\",\"train\":[\"a.parquet\"]},\"slots\":["
    "{\"name\":\"y\",\"type\":\"float\",\"role\":\"label\"},"
    "{\"name\":\"s\",\"type\":\"float\",\"dim\":2,\"columns\":[\"a\",\"b.c\"],"
    "\"transform\":[\"log1p\",\"standardize\"]},"
    "{\"name\":\"t\",\"type\":\"float\",\"columns\":[\"d\"],\"transform\":"
    "\"equals\",\"value\":[\"a\"]},"
    "{\"name\":\"u\",\"type\":\"uint64\",\"transform\":\"none\"}]";

/* One slot has all features. */
static const char libsvm[] =
    "\"model\":{\"type\":\"fm\"},\"dataset\":{\"format\":\"libsvm\","
    "\"train\":[\"a\"]},\"slots\":["
    "{\"name\":\"y\",\"type\":\"float\",\"role\":\"label\"},"
    "{\"name\":\"u\",\"type\":\"uint64\",\"dim\":-1,\"weighted\":true}]";

/* Slots by their names in each line. */
#define BY_NAME(format)                                                        \
    "\"model\":{\"type\":\"nfm\"},\"dataset\":{\"format\":\"" format           \
    "\",\"train\":[\"a\"]},\"slots\":["                                        \
    "{\"name\":\"y\",\"type\":\"float\",\"role\":\"label\"},"                  \
    "{\"name\":\"u\",\"type\":\"uint64\",\"dim\":-1}]"

static const char idx[] =
    "\"dataset\":{\"format\":\"idx\",\"train\":[\"a\",\"b\"]}";

static const char *const rules[] = {
#define FL_RULE(KIND, name, ...) #name,
#include "runtime/optim/rules.def"
};

static const char *const schedules[] = {
#define FL_SCHEDULE(KIND, name) #name,
#include "runtime/optim/schedules.def"
};

static void add_schedule(fl_text *t, int i)
{
    const fleet_schedule_kind kind = (fleet_schedule_kind)i;
    const fl_schedule_number *n;

    fl_text_add(t, "{\"type\":\"%s\"", schedules[i]);
    for (int k = 0; (n = fl_schedule_number_of(kind, k)) != NULL; k++)
        if (n->otherwise < n->low) /* it is required */
            fl_text_add(t, ",\"%s\":%.17g", n->name,
                        n->type == FL_SCHEDULE_INT ? n->low : n->high);
    if (fl_schedule_has_boundaries(kind))
        fl_text_add(t, ",\"boundaries\":[1]");
    if (fl_schedule_has_values(kind))
        fl_text_add(t, ",\"values\":[1,0.5]");
    fl_text_add(t, "}");
}

/* The rule and the schedule of that number, of which there may be fewer. */
static void add_optimizer(fl_text *t, int i)
{
    fl_text_add(t, "{\"type\":\"%s\",\"decay\":", rules[i % FL_N_RULE]);
    add_schedule(t, i % FL_N_SCHEDULE);
}

/* Its arrays. */
static void add_layers(fl_text *t, const fl_ctr_model *m)
{
    for (const fl_ctr_option *o = fl_ctr_options; o->name; o++)
        for (int i = 0; m->own[i]; i++)
            if (strcmp(m->own[i], o->name) != 0)
                continue;
            else if (o->type == FL_OPTION_LAYERS)
                fl_text_add(t, ",\"%s\":[8]", o->name);
            else if (o->type == FL_OPTION_FLOATS)
                fl_text_add(t, ",\"%s\":[1,1]", o->name);
}

/* Slots of roles, of which there have to be some, and of a feature. */
static void add_roles(fl_text *t, const fl_ctr_model *m)
{
    if (!m->no_features)
        fl_text_add(t, ",{\"name\":\"u\",\"type\":\"uint64\"}");
    for (int r = FLEET_SLOT_FEATURE + 1; r < FL_N_SLOT_ROLE; r++)
        for (int i = 0; i < m->role[r].least; i++)
            fl_text_add(t,
                        ",{\"name\":\"%s%d\",\"type\":\"uint64\",\"dim\":%d,"
                        "\"role\":\"%s\"}",
                        fl_slot_role_names[r], i,
                        r == FLEET_SLOT_HISTORY ? -1 : 1,
                        fl_slot_role_names[r]);
}

/* On lines that have as many labels as it wants. */
static void add_ctr(fl_text *t, const fl_model_kind *kind)
{
    const int n = kind->ctr->most_tasks > 0 ? kind->ctr->least_tasks : 1;

    fl_text_add(t, "\"model\":{\"type\":\"%s\"", kind->name);
    add_layers(t, kind->ctr);
    fl_text_add(t, "},%s,\"slots\":[", multislot);
    for (int i = 0; i < n; i++)
        fl_text_add(t,
                    "%s{\"name\":\"y%d\",\"type\":\"uint64\","
                    "\"role\":\"label\"}",
                    i > 0 ? "," : "", i);
    add_roles(t, kind->ctr);
    fl_text_add(t, "]");
}

static int count_kinds(void)
{
    int n = 0;

    while (fl_model_kinds[n].name)
        n++;
    return n;
}

/* One of each format; multislot and idx come with models. */
static const char *const forms[] = {csv,
                                    criteo,
                                    parquet,
                                    libsvm,
                                    BY_NAME("slot_text"),
                                    BY_NAME("json_lines"),
                                    BY_NAME("tfrecord")};

enum { N_FORM = sizeof forms / sizeof *forms };

/* Forms of their own, then each model. */
static void add_model(fl_text *t, int i, bool *has_rows)
{
    const fl_model_kind *kind =
        &fl_model_kinds[i < N_FORM ? 0 : (i - N_FORM) % count_kinds()];

    *has_rows = i < N_FORM || kind->ctr;
    if (i < N_FORM)
        fl_text_add(t, "%s", forms[i]);
    else if (kind->ctr)
        add_ctr(t, kind);
    else
        fl_text_add(t, "\"model\":{\"type\":\"%s\",\"class_weights\":[1,1]},%s",
                    kind->name, idx);
}

fleet_status fl_schema_probe(int i, char **text)
{
    const int n_rule = FL_N_RULE, n_schedule = FL_N_SCHEDULE;
    bool has_rows;
    fl_text t = {0};

    *text = NULL;
    if (i >= n_rule && i >= n_schedule && i >= N_FORM + count_kinds())
        return FLEET_OK;
    fl_text_add(&t, "{");
    add_model(&t, i, &has_rows);
    fl_text_add(&t, ",\"optimizer\":");
    add_optimizer(&t, i);
    fl_text_add(&t, "%s,\"plateau\":{},\"tables\":{\"a\":",
                has_rows ? ",\"row_bounds\":[0,1]" : "");
    add_optimizer(&t, i);
    fl_text_add(&t, ",\"row_bounds\":[0,1]}}}}");
    if (t.status != FLEET_OK)
        fl_text_done(&t);
    *text = t.chars;
    return t.status;
}
