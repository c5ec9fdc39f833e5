/* schema.c - fleet_config_schema(): what the reader of configurations asks, of
 * some that are good, put together. */
#include <stdio.h>
#include <string.h>

#include <fleet/report.h>

#include "base/json/json_write.h"
#include "base/memory.h"
#include "fleet/config/config.h"
#include "fleet/config/schema_probe.h"

enum { MOST_NAMES = 120, DIGITS = 17 };

/* Names, each once, in the order in which they were first told. */
typedef struct name_list {
    const char *name[MOST_NAMES];
    int n;
} name_list;

/* All values that stand at one path; elements of an array at the same. */
typedef struct node {
    char path[200];
    bool is[FL_ASKED_REQUIRED]; /* by kind: it may be that */
    double low, high;           /* of numbers, over all that were told */
    name_list keys, choices;
    int n_object;   /* how often it was an object with keys */
    int n_required; /* how often it was asked not to be absent */
} node;

typedef struct collection {
    node *node;
    size_t n, capacity;
    fl_arena names;
    fleet_status status;
} collection;

/* --- what is told --------------------------------------------------------- */

static node *find_node(const collection *c, const char *path)
{
    for (size_t i = 0; i < c->n; i++)
        if (strcmp(c->node[i].path, path) == 0)
            return &c->node[i];
    return NULL;
}

/* The part of a path up to a place; does it have any names? */
static bool has_members(const collection *c, const char *path, size_t n)
{
    char part[200];
    const node *found;

    memcpy(part, path, n);
    part[n] = 0;
    found = find_node(c, part);
    return found && found->is[FL_ASKED_MEMBERS];
}

/* "slots[2].dim" is "slots[].dim", and a name that may be any is "*". */
static void general_path(const collection *c, const char *from, char *to)
{
    size_t n = 0;

    while (*from && n < 190) {
        if (*from == '[') {
            to[n++] = '[';
            to[n++] = ']';
            from += strcspn(from, "]") + 1;
        } else if (*from == '.' && has_members(c, to, n)) {
            to[n++] = '.';
            to[n++] = '*';
            from += 1 + strcspn(from + 1, ".[");
        } else {
            to[n++] = *from++;
        }
    }
    to[n] = 0;
}

static node *add_node(collection *c, const char *general)
{
    node *found = find_node(c, general);

    if (found)
        return found;
    c->status = fl_grow(&c->node, &c->capacity, c->n + 1, sizeof *c->node);
    if (c->status != FLEET_OK)
        return NULL;
    found = &c->node[c->n++];
    strcpy(found->path, general);
    return found;
}

/* Of an array whose elements alone are asked for there is one, too. */
static node *node_of(collection *c, const char *path)
{
    char general[200];
    size_t n;

    general_path(c, path, general);
    n = strlen(general);
    if (n > 2 && general[n - 1] == ']') {
        general[n - 2] = 0;
        if (!add_node(c, general))
            return NULL;
        general[n - 2] = '[';
    }
    return add_node(c, general);
}

/* Readers keep names on their stacks. */
static void add_names(collection *c, name_list *list, const char *const *names)
{
    for (; *names; names++) {
        int i = 0;

        while (i < list->n && strcmp(list->name[i], *names) != 0)
            i++;
        if (i < list->n)
            continue;
        if (list->n == MOST_NAMES) {
            c->status =
                fl_fail(FLEET_ESTATE, "schema: more than %d names", MOST_NAMES);
            return;
        }
        list->name[list->n] = fl_arena_strdup(&c->names, *names);
        if (!list->name[list->n++])
            c->status = FLEET_ENOMEM;
    }
}

static void widen_range(node *n, const fl_asked *asked)
{
    const bool first = !n->is[FL_ASKED_INT] && !n->is[FL_ASKED_NUMBER];

    n->low = first || asked->low < n->low ? asked->low : n->low;
    n->high = first || asked->high > n->high ? asked->high : n->high;
}

static void hear(void *arg, const fl_at *at, const fl_asked *asked)
{
    collection *c = arg;
    node *n = c->status == FLEET_OK ? node_of(c, at->path) : NULL;

    if (!n)
        return;
    if (asked->kind == FL_ASKED_REQUIRED) {
        n->n_required++;
        return;
    }
    if (asked->kind == FL_ASKED_INT || asked->kind == FL_ASKED_NUMBER)
        widen_range(n, asked);
    n->is[asked->kind] = true;
    if (asked->kind == FL_ASKED_KEYS) {
        n->n_object += at->json != NULL;
        add_names(c, &n->keys, asked->names);
    } else if (asked->kind == FL_ASKED_CHOICE) {
        add_names(c, &n->choices, asked->names);
    }
}

static fleet_status ask_reader(collection *c, const char *text)
{
    fl_config config;
    fleet_status status;

    fl_at_observe(hear, c);
    status = fl_config_read(&config, text, strlen(text), "schema");
    fl_at_observe(NULL, NULL);
    fl_config_done(&config);
    return status == FLEET_OK ? c->status : status;
}

static fleet_status ask_all(collection *c)
{
    fleet_status status = FLEET_OK;
    char *text;

    for (int i = 0; status == FLEET_OK; i++) {
        FL_TRY(fl_schema_probe(i, &text));
        if (!text)
            break;
        status = ask_reader(c, text);
        fl_free(text);
    }
    return status;
}

/* --- what is said --------------------------------------------------------- */

typedef struct saying {
    const collection *c;
    fleet_status status; /* the first failure's */
} saying;

static fl_json *value_at(saying *s, const char *path);

/* The value goes in any case. After a failure nothing is said any more. */
static void put_value(saying *s, fl_json *object, const char *key,
                      fl_json *value)
{
    if (s->status == FLEET_OK)
        s->status = fl_json_put(object, key, value);
    else
        fl_json_free(value);
}

static void append_value(saying *s, fl_json *array, fl_json *value)
{
    if (s->status == FLEET_OK)
        s->status = fl_json_append(array, value);
    else
        fl_json_free(value);
}

static fl_json *new_array(saying *s, fl_json *object, const char *key)
{
    fl_json *array = NULL;

    if (s->status == FLEET_OK)
        s->status = fl_json_put_array(object, key, &array);
    return array;
}

static fl_json *of_type(saying *s, const char *type)
{
    fl_json *json = fl_json_object();

    put_value(s, json, "type", fl_json_string(type));
    return json;
}

/* The node of a key, or of elements. */
static const node *below(const saying *s, const node *n, const char *between,
                         const char *name)
{
    char path[400];

    snprintf(path, sizeof path, "%s%s%s", n->path, *n->path ? between : "",
             name);
    return find_node(s->c, path);
}

static void put_key(saying *s, const node *n, const char *name, fl_json *keys)
{
    const node *one = below(s, n, ".", name);

    if (one)
        put_value(s, keys, name, value_at(s, one->path));
    else if (s->status == FLEET_OK)
        s->status = fl_fail(FLEET_ESTATE,
                            "schema: no configuration of schema_probe.c asks "
                            "for \"%s\" of \"%s\"",
                            name, n->path);
}

static bool is_required(const saying *s, const node *n, const char *name)
{
    const node *one = below(s, n, ".", name);

    return n->n_object > 0 && one && one->n_required == n->n_object;
}

static fl_json *object_of(saying *s, const node *n)
{
    fl_json *json = of_type(s, "object"), *keys = fl_json_object();
    fl_json *required = NULL;

    put_value(s, json, "properties", keys);
    for (int i = 0; i < n->keys.n && s->status == FLEET_OK; i++) {
        put_key(s, n, n->keys.name[i], keys);
        if (!is_required(s, n, n->keys.name[i]))
            continue;
        if (!required)
            required = new_array(s, json, "required");
        append_value(s, required, fl_json_string(n->keys.name[i]));
    }
    put_value(s, json, "additionalProperties", fl_json_bool(false));
    return json;
}

static fl_json *members_of(saying *s, const node *n)
{
    const node *one = below(s, n, ".", "*");
    fl_json *json = of_type(s, "object");

    if (one)
        put_value(s, json, "additionalProperties", value_at(s, one->path));
    return json;
}

static fl_json *array_of(saying *s, const node *elements)
{
    fl_json *json = of_type(s, "array");

    put_value(s, json, "items", value_at(s, elements->path));
    return json;
}

static fl_json *number_of(saying *s, const node *n)
{
    fl_json *json = of_type(s, n->is[FL_ASKED_NUMBER] ? "number" : "integer");

    put_value(s, json, "minimum", fl_json_double(n->low, DIGITS));
    put_value(s, json, "maximum", fl_json_double(n->high, DIGITS));
    return json;
}

static fl_json *choice_of(saying *s, const node *n)
{
    fl_json *json = fl_json_object(), *list = new_array(s, json, "enum");

    for (int i = 0; i < n->choices.n; i++)
        append_value(s, list, fl_json_string(n->choices.name[i]));
    return json;
}

/* What it may be; how many that are. */
static int add_forms(saying *s, const node *n, fl_json *forms)
{
    const node *elements = below(s, n, "", "[]");
    const bool number = n->is[FL_ASKED_INT] || n->is[FL_ASKED_NUMBER];
    const bool chosen = n->is[FL_ASKED_CHOICE] && !n->is[FL_ASKED_STRING];
    const bool any = n->is[FL_ASKED_MEMBERS] && !n->is[FL_ASKED_KEYS];

    if (n->is[FL_ASKED_STRING])
        append_value(s, forms, of_type(s, "string"));
    if (chosen)
        append_value(s, forms, choice_of(s, n));
    if (n->is[FL_ASKED_BOOL])
        append_value(s, forms, of_type(s, "boolean"));
    if (number)
        append_value(s, forms, number_of(s, n));
    if (elements)
        append_value(s, forms, array_of(s, elements));
    if (n->is[FL_ASKED_KEYS])
        append_value(s, forms, object_of(s, n));
    if (any)
        append_value(s, forms, members_of(s, n));
    return n->is[FL_ASKED_STRING] + chosen + n->is[FL_ASKED_BOOL] + number +
           (elements != NULL) + n->is[FL_ASKED_KEYS] + any;
}

/* NULL, with the status, where nothing was asked. */
static fl_json *value_at(saying *s, const char *path)
{
    fl_json *all = fl_json_object(), *forms = new_array(s, all, "anyOf");
    int n = add_forms(s, find_node(s->c, path), forms);
    fl_json *only = NULL;

    if (n == 0 && s->status == FLEET_OK)
        s->status = fl_fail(FLEET_ESTATE,
                            "schema: no configuration of schema_probe.c asks "
                            "what \"%s\" is",
                            path);
    if (n > 1)
        return all;
    if (s->status == FLEET_OK) {
        fl_at root = fl_at_root(all), list = fl_at_key(&root, "anyOf");

        only = fl_json_copy(fl_at_index(&list, 0).json);
    }
    fl_json_free(all);
    return only;
}

static fleet_status say_all(const collection *c, char **text)
{
    saying s = {.c = c};
    fl_json *json = value_at(&s, "");

    put_value(&s, json, "$schema",
              fl_json_string("https://json-schema.org/draft/2020-12/schema"));
    put_value(&s, json, "title",
              fl_json_string("configuration of fleet-train"));
    if (s.status == FLEET_OK) {
        *text = fl_json_print(json, true);
        s.status = *text ? FLEET_OK : FLEET_ENOMEM;
    }
    fl_json_free(json);
    return s.status;
}

char *fleet_config_schema(void)
{
    collection c = {0};
    fleet_status status = ask_all(&c);
    char *text = NULL;

    if (status == FLEET_OK)
        status = say_all(&c, &text);
    fl_free(c.node);
    fl_arena_done(&c.names);
    return status == FLEET_OK ? text : NULL;
}
