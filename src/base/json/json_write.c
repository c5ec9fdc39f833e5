/* json_write.c - JSON that is made, changed and written, by cJSON. */
#include "base/json/json_write.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/memory.h"
#include "base/text.h"

fl_json *fl_json_object(void)
{
    return cJSON_CreateObject();
}

fl_json *fl_json_array(void)
{
    return cJSON_CreateArray();
}

static fleet_status no_memory(fl_json *value)
{
    cJSON_Delete(value);
    return fl_fail(FLEET_ENOMEM, "out of memory: JSON");
}

fleet_status fl_json_put(fl_json *object, const char *key, fl_json *value)
{
    if (!object || !value || !cJSON_AddItemToObject(object, key, value))
        return no_memory(value);
    return FLEET_OK;
}

fleet_status fl_json_put_array(fl_json *object, const char *key,
                               fl_json **array)
{
    *array = fl_json_array();
    return fl_json_put(object, key, *array);
}

fleet_status fl_json_append(fl_json *array, fl_json *value)
{
    if (!array || !value || !cJSON_AddItemToArray(array, value))
        return no_memory(value);
    return FLEET_OK;
}

fl_json *fl_json_string(const char *text)
{
    return cJSON_CreateString(text);
}

fl_json *fl_json_bool(bool value)
{
    return cJSON_CreateBool(value);
}

fl_json *fl_json_int(int64_t value)
{
    char text[32];

    snprintf(text, sizeof text, "%" PRId64, value);
    return cJSON_CreateRaw(text);
}

fl_json *fl_json_hex(uint64_t value)
{
    char text[17];

    snprintf(text, sizeof text, "%016" PRIx64, value);
    return cJSON_CreateString(text);
}

fl_json *fl_json_words(const void *data, int64_t n, size_t size)
{
    static const char digit[] = "0123456789abcdef";
    size_t bytes = (size_t)n * size;
    const unsigned char *from = data;
    char *text = fl_alloc(2 * bytes + 1);
    fl_json *json;

    for (size_t i = 0; text && i < bytes; i++) {
        text[2 * i] = digit[from[i] >> 4];
        text[2 * i + 1] = digit[from[i] & 15];
    }
    json = text ? fl_json_string(text) : NULL;
    fl_free(text);
    return json;
}

fl_json *fl_json_double(double value, int digits)
{
    fl_text t = {0};
    fl_json *json;

    if (!isfinite(value))
        return cJSON_CreateNull();
    fl_text_add(&t, "%.*g", digits, value);
    json = t.status == FLEET_OK ? cJSON_CreateRaw(fl_text_chars(&t)) : NULL;
    fl_text_done(&t);
    return json;
}

fl_json *fl_json_copy(const fl_json *json)
{
    return cJSON_Duplicate(json, true);
}

char *fl_json_print(const fl_json *json, bool pretty)
{
    char *raw = pretty ? cJSON_Print(json) : cJSON_PrintUnformatted(json);
    char *copy = raw ? fl_strdup(raw) : NULL;

    if (!raw)
        fl_fail(FLEET_ENOMEM, "out of memory: JSON text");
    cJSON_free(raw);
    return copy;
}

/* --- by a path ------------------------------------------------------------ */

enum { MOST_NAME = 100 };

/* A step of a path: a member's name, or an element's index. */
typedef struct path_step {
    char name[MOST_NAME]; /* "": an element */
    long index;
    bool is_last;
} path_step;

/* Moves *path behind the step. */
static bool read_step(const char **path, path_step *s)
{
    size_t n = strcspn(*path, ".[");
    char *end;

    *s = (path_step){0};
    if (n == 0 && **path == '[' && (*path)[1] >= '0' && (*path)[1] <= '9') {
        s->index = strtol(*path + 1, &end, 10);
        if (*end != ']')
            return false;
        *path = end + 1;
    } else {
        if (n == 0 || n >= sizeof s->name)
            return false;
        memcpy(s->name, *path, n);
        *path += n;
    }
    s->is_last = **path == 0;
    if (**path == '.' && (*path)[1] != '[')
        return *++*path != 0;
    return s->is_last || **path == '[';
}

/* What the first `length` characters of the path lead to is something else. */
static fleet_status is_no(const char *what, const char *path, int length)
{
    return fl_fail(FLEET_ECONFIG, "%.*s: expected it to be an %s", length, path,
                   what);
}

/* Where the step leads from what the first `length` characters of the path lead
 * to. *child NULL: nothing is there yet, and something may be. */
static fleet_status find_child(fl_json *at, const path_step *s,
                               const char *path, int length, fl_json **child)
{
    int n = cJSON_IsArray(at) ? cJSON_GetArraySize(at) : 0;

    *child = *s->name       ? cJSON_GetObjectItemCaseSensitive(at, s->name)
             : s->index < n ? cJSON_GetArrayItem(at, (int)s->index)
                            : NULL;
    if (*s->name ? cJSON_IsObject(at) : *child != NULL)
        return FLEET_OK;
    if (length == 0) {
        path = "the whole text";
        length = (int)strlen(path);
    }
    return *s->name || !cJSON_IsArray(at)
               ? is_no(*s->name ? "object" : "array", path, length)
               : fl_fail(FLEET_ECONFIG,
                         "%.*s: expected an element %ld, but it has %d", length,
                         path, s->index, n);
}

static fleet_status put_child(fl_json *at, const path_step *s, fl_json *child,
                              fl_json *value)
{
    bool done = !child ? cJSON_AddItemToObject(at, s->name, value)
                : *s->name
                    ? cJSON_ReplaceItemInObjectCaseSensitive(at, s->name, value)
                    : cJSON_ReplaceItemInArray(at, (int)s->index, value);

    return done ? FLEET_OK : fl_fail(FLEET_ENOMEM, "out of memory: JSON");
}

static fleet_status check_path(const char *path)
{
    const char *next = path;
    path_step s = {.is_last = false};

    while (!s.is_last)
        if (!read_step(&next, &s))
            return fl_fail(FLEET_ECONFIG,
                           "%s: expected names with dots between them, and "
                           "[number] for elements",
                           path);
    return FLEET_OK;
}

static fleet_status set_at(fl_json *at, const char *path, fl_json *value)
{
    const char *next = path;
    fl_json *child;
    path_step s;

    FL_TRY(check_path(path));
    for (;; at = child) {
        const char *here = next;

        read_step(&next, &s);
        FL_TRY(find_child(at, &s, path,
                          (int)(here - path) - (here > path && *s.name),
                          &child));
        if (s.is_last)
            return put_child(at, &s, child, value);
        if (!child) {
            const char *element = strchr(next, '[');

            if (element) /* of an array that there is not */
                return is_no("array", path, (int)(element - path));
            child = cJSON_AddObjectToObject(at, s.name);
            if (!child)
                return fl_fail(FLEET_ENOMEM, "out of memory: JSON");
        }
    }
}

fleet_status fl_json_set(fl_json *root, const char *path, fl_json *value)
{
    fleet_status status = value ? set_at(root, path, value)
                                : fl_fail(FLEET_ENOMEM, "out of memory: JSON");

    if (status != FLEET_OK)
        cJSON_Delete(value);
    return status;
}
