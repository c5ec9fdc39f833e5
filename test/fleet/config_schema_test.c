/* config_schema_test.c - the schema of configurations: what the reader takes,
 * no key more and none less, by a checker of its own. */
#define _GNU_SOURCE
#define SUITE config_schema
#include "test.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fleet/fleet.h>

#include "base/file.h"
#include "base/json/json.h"
#include "base/json/json_write.h"
#include "base/memory.h"
#include "data/format/formats.h"
#include "fleet/config/config.h"
#include "fleet/config/schema_probe.h"

static fl_json *schema(void)
{
    char *text = fleet_config_schema();
    fl_json *json;

    if (!text)
        test_fail(__FILE__, __LINE__, "%s", fleet_last_error());
    CHECK_OK(fl_json_parse(text, strlen(text), "schema", &json));
    test_file("schema.json", text);
    fleet_free(text);
    return json;
}

/* What the schema says of a path of keys: "dataset.shuffle". */
static fl_at said_of(const fl_json *json, const char *path)
{
    fl_at at = fl_at_root(json);
    char name[80];

    while (*path) {
        size_t n = strcspn(path, ".");
        fl_at keys = fl_at_key(&at, "properties");

        snprintf(name, sizeof name, "%.*s", (int)n, path);
        at = fl_at_key(&keys, name);
        path += n + (path[n] == '.');
    }
    if (!at.json)
        test_fail(__FILE__, __LINE__, "the schema has no such key");
    return at;
}

static void check_said(const fl_json *json, const char *path, const char *want)
{
    fl_at at = said_of(json, path);
    char *text = fl_json_print(at.json, false);

    CHECK_TEXT(text, want);
    fl_free(text);
}

TEST(types_ranges_and_choices_are_those_of_the_reader)
{
    fl_json *s = schema();

    check_said(s, "epochs",
               "{\"type\":\"integer\",\"minimum\":1,\"maximum\":1000000}");
    check_said(s, "model.check_ids", "{\"type\":\"boolean\"}");
    check_said(s, "model.fresh", "{\"enum\":[\"initial\",\"zeros\",\"row\"]}");
    check_said(s, "dataset.train",
               "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}");
    check_said(s, "model.ps",
               "{\"type\":\"object\",\"additionalProperties\":{\"type\":"
               "\"boolean\"}}");
    check_said(s, "validate_every.min_delta",
               "{\"type\":\"number\",\"minimum\":0,\"maximum\":1000000000}");
    check_said(s, "dataset.separator", "{\"type\":\"string\"}");
    fl_json_free(s);
}

TEST(a_value_of_two_forms_may_be_either)
{
    fl_json *s = schema();
    fl_at save = said_of(s, "save"), forms = fl_at_key(&save, "anyOf");
    fl_at object = fl_at_index(&forms, 1), keys, required;
    char *text;

    CHECK_INT(fl_at_count(&forms), 2);
    keys = fl_at_key(&object, "properties");
    CHECK_INT(fl_at_count(&keys), 2);
    required = fl_at_key(&object, "required");
    text = fl_json_print(required.json, false);
    CHECK_TEXT(text, "[\"path\"]");
    fl_free(text);
    fl_json_free(s);
}

/* --- keys ----------------------------------------------------------------- */

typedef enum answer {
    TAKEN,    /* or refused for its value */
    UNKNOWN,  /* as a key */
    ELSEWHERE /* something else was refused */
} answer;

static answer ask(const char *probe, const char *path)
{
    char set[300];
    const char *one[] = {set}, *why = fleet_last_error();
    fleet_status status;
    fl_config c;

    snprintf(set, sizeof set, "%s=null", path);
    status = fl_config_read_with(&c, probe, strlen(probe), "probe", one, 1);
    fl_config_done(&c);
    if (status == FLEET_OK)
        return TAKEN;
    if (*why == '"' || !strstr(why, path)) /* it cannot be set, or another */
        return ELSEWHERE;
    return strstr(why, "unknown key") ? UNKNOWN : TAKEN;
}

/* Of all probes how many say so of the key, in that object, which some of them
 * get for it. */
static int count_answers(const char *path, answer want)
{
    char *probe;
    int n = 0;

    for (int i = 0;; i++) {
        CHECK_OK(fl_schema_probe(i, &probe));
        if (!probe)
            return n;
        n += ask(probe, path) == want;
        fl_free(probe);
    }
}

static void check_key(const char *path)
{
    if (count_answers(path, TAKEN) == 0)
        test_fail(__FILE__, __LINE__, "nothing takes \"%s\"", path);
}

static void check_no_key(const char *object)
{
    char path[300];

    snprintf(path, sizeof path, "%s%szzz", object, *object ? "." : "");
    if (count_answers(path, UNKNOWN) == 0)
        test_fail(__FILE__, __LINE__, "\"%s\" is not unknown", path);
}

static int walk(const fl_at *at, const char *path);

static int walk_keys(const fl_at *keys, const char *path)
{
    int n = 0;

    for (fl_at e = fl_at_first_member(keys); e.json;
         fl_at_next_member(keys, &e)) {
        char below[300];

        snprintf(below, sizeof below, "%s%s%s", path, *path ? "." : "",
                 fl_at_name(&e));
        check_key(below);
        n += 1 + walk(&e, below);
    }
    return n;
}

/* Of objects in arrays the first one, of those by names that of the probes. */
static int walk(const fl_at *at, const char *path)
{
    fl_at keys = fl_at_key(at, "properties"), items = fl_at_key(at, "items");
    fl_at forms = fl_at_key(at, "anyOf");
    fl_at any = fl_at_key(at, "additionalProperties");
    char below[300];
    int n = 0;

    for (fl_at e = fl_at_first(&forms); e.json; fl_at_next(&forms, &e))
        n += walk(&e, path);
    if (keys.json) {
        check_no_key(path);
        n += walk_keys(&keys, path);
    }
    if (items.json) {
        snprintf(below, sizeof below, "%s[0]", path);
        n += walk(&items, below);
    }
    if (fl_at_is_object(&any)) {
        snprintf(below, sizeof below, "%s.a", path);
        n += walk(&any, below);
    }
    return n;
}

TEST(each_key_of_the_schema_is_taken_and_no_other)
{
    fl_json *s = schema();
    fl_at root = fl_at_root(s);

    CHECK(walk(&root, "") > 150);
    fl_json_free(s);
}

/* The first probe of that format, read. */
static void find_probe(int format, fl_config *c)
{
    char *probe;

    for (int i = 0;; i++) {
        CHECK_OK(fl_schema_probe(i, &probe));
        if (!probe)
            test_fail(__FILE__, __LINE__, "no probe is of format %s",
                      fl_format_names[format]);
        CHECK_OK(fl_config_read(c, probe, strlen(probe), "probe"));
        fl_free(probe);
        if ((int)c->dataset.format == format)
            return;
        fl_config_done(c);
    }
}

/* What a format refuses, and what belongs to it, has been asked of it. */
TEST(each_format_has_a_probe)
{
    fl_config c;

    for (int format = 0; fl_format_names[format]; format++) {
        find_probe(format, &c);
        fl_config_done(&c);
    }
    find_probe(FLEET_PARQUET, &c);
    CHECK_TEXT(c.dataset.missing, "?");
    CHECK_TEXT(c.slot[0].slot.columns[0], "y"); /* the slot's name */
    CHECK_INT(c.slot[1].slot.n_column, 2);
    fl_config_done(&c);
}

/* --- a second checker ----------------------------------------------------- */

static const char *checked(const char *files)
{
    static char said[20000];
    char command[9000];

    snprintf(command, sizeof command,
             "'%s/test/fleet/check_schema.py' '%s' %s 2>&1",
             getenv("FLEET_SOURCE"), test_path("schema.json"), files);
    CHECK_INT(test_shell(command, said, sizeof said), 0);
    return said;
}

TEST(the_samples_and_the_probes_are_valid)
{
    char files[8000], name[40], *probe;
    const char *said;
    int n = 0, n_probe = 0;
    size_t used;

    fl_json_free(schema());
    used = (size_t)snprintf(files, sizeof files, "'%s'/samples/configs/*.json",
                            getenv("FLEET_SOURCE"));
    for (int i = 0;; i++) {
        CHECK_OK(fl_schema_probe(i, &probe));
        if (!probe)
            break;
        snprintf(name, sizeof name, "probe%d", i);
        used += (size_t)snprintf(files + used, sizeof files - used, " '%s'",
                                 test_file(name, probe));
        fl_free(probe);
        n_probe++;
    }
    said = checked(files);
    for (const char *at = strstr(said, ": valid\n"); at;
         at = strstr(at + 1, ": valid\n"))
        n++;
    CHECK(n > n_probe);
    CHECK(strstr(said, "invalid") == NULL);
    CHECK(strstr(said, "jsonschema: same\n") ||
          strstr(said, "jsonschema: absent\n"));
}

/* What the schema refuses the reader refuses, too. */
TEST(what_is_refused_is_refused_by_the_reader_too)
{
    static const char *const sets[] = {
        "epochs=0",
        "epochs=1.5",
        "epochs=\"3\"",
        "seed=null",
        "optimzer={}",
        "model.type=mlpp",
        "model.hidden=[8,0]",
        "model.hidden=8",
        "model.ps={\"a\":1}",
        "dataset.train=[1]",
        "dataset.batch_size=16777217",
        "slots[0].role=feature",
        "slots[1].dim=1e9",
        "slots[1].columns=[true]",
        "optimizer.learning_rate=0",
        "optimizer.tables.a.type=best",
        "optimizer.tables.a.tables={}",
        "optimizer.decay.rat=1",
        "strategy.amp=1",
        "strategy.amp_configs.use=true",
        "save={\"mode\":\"all\"}",
        "save=3",
        "metrics_log={\"path\":\"a\",\"step\":4}",
        "load={\"path\":\"a\",\"position\":1}",
        "trainer.thread=65",
    };
    char files[9000] = "", name[40], *text, *base;
    const char *said;
    size_t used = 0;

    fl_json_free(schema());
    CHECK_OK(fl_schema_probe(0, &base));
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        fl_config c;

        CHECK_STATUS(
            fl_config_read_with(&c, base, strlen(base), "base", &sets[i], 1),
            FLEET_ECONFIG);
        text = fl_json_print(c.json, false);
        fl_config_done(&c);
        snprintf(name, sizeof name, "bad%zu", i);
        used += (size_t)snprintf(files + used, sizeof files - used, " '%s'",
                                 test_file(name, text));
        fl_free(text);
    }
    fl_free(base);
    said = checked(files);
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        char want[3000];

        snprintf(name, sizeof name, "bad%zu", i);
        snprintf(want, sizeof want, "%s: invalid\n", test_path(name));
        if (!strstr(said, want))
            test_fail(__FILE__, __LINE__, "%s is valid by the schema", sets[i]);
    }
}

TEST(fleet_train_prints_it)
{
    char command[2000], said[200];

    snprintf(command, sizeof command, "'%s' --schema >'%s'",
             test_beside("fleet-train"), test_path("printed"));
    CHECK_INT(test_shell(command, said, sizeof said), 0);
    fl_json_free(schema());
    snprintf(command, sizeof command, "printf '\\n' | cat '%s' - | cmp - '%s'",
             test_path("schema.json"), test_path("printed"));
    CHECK_INT(test_shell(command, said, sizeof said), 0);
}
