/* json.c - JSON by cJSON, with the path of each fault. */
#include "base/json/json.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/json/json_syntax.h"
#include "base/memory.h"
#include "base/text.h"

static int line_of(const char *text, const char *at)
{
    int line = 1;

    for (; text < at; text++)
        line += *text == '\n';
    return line;
}

/* cJSON takes an escaped zero for the end of the string. */
static const char *escaped_zero(const char *text, size_t size)
{
    for (size_t i = 0; i + 1 < size; i++) {
        if (text[i] != '\\')
            continue;
        if (size - i >= 6 && memcmp(text + i, "\\u0000", 6) == 0)
            return text + i;
        i++; /* what is escaped, a backslash say */
    }
    return NULL;
}

/* In characters, from 1. */
static int column_of(const char *text, const char *at)
{
    int column = 1;

    for (; at > text && at[-1] != '\n'; at--)
        column += (at[-1] & 0xc0) != 0x80; /* a character's first byte */
    return column;
}

/* What stands in that place: a word, or a character. */
static void describe_place(const char *at, const char *end, fl_text *t)
{
    static const char word[] = "abcdefghijklmnopqrstuvwxyz"
                               "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-._";
    enum { MOST = 20 };
    size_t n = 0;

    while (at + n < end && n < MOST && at[n] && strchr(word, at[n]))
        n++;
    if (at == end)
        fl_text_add(t, "the end of the text");
    else if (n > 0 || (*at > ' ' && *at <= '~'))
        fl_text_add(t, "'%.*s'", n ? (int)n : 1, at);
    else
        fl_text_add(t, "the byte 0x%02x", (unsigned)(unsigned char)*at);
}

static fleet_status not_valid(const char *text, size_t size, const char *name,
                              const fl_json_place *fault)
{
    fl_text got = {0};
    fleet_status status;

    describe_place(fault->at, text + size, &got);
    status =
        fl_fail(FLEET_ECONFIG, "%s:%d:%d: not valid JSON: expected %s, got %s",
                name, line_of(text, fault->at), column_of(text, fault->at),
                fault->expected, fl_text_chars(&got));
    fl_text_done(&got);
    return status;
}

fleet_status fl_json_parse(const char *text, size_t size, const char *name,
                           fl_json **json)
{
    const char *end = text, *zero = escaped_zero(text, size);
    fl_json_place fault;

    *json = NULL;
    if (fl_json_find_fault(text, size, &fault)) /* cJSON is lenient */
        return not_valid(text, size, name, &fault);
    if (zero)
        return fl_fail(FLEET_ECONFIG, "%s:%d: \\u0000 in a string", name,
                       line_of(text, zero));
    fl_error_clear();
    *json = cJSON_ParseWithLengthOpts(text, size, &end, false);
    if (!*json && fl_last_code() == FLEET_ENOMEM)
        return FLEET_ENOMEM;
    if (!*json)
        return fl_fail(FLEET_ECONFIG, "%s:%d:%d: not valid JSON", name,
                       line_of(text, end), column_of(text, end));
    for (; end < text + size; end++)
        if (!memchr(" \t\r\n", *end, 4)) {
            fl_json_free(*json);
            *json = NULL;
            return fl_fail(FLEET_ECONFIG,
                           "%s:%d:%d: text after the end of the JSON value",
                           name, line_of(text, end), column_of(text, end));
        }
    return FLEET_OK;
}

/* --- what cJSON lets pass ------------------------------------------------- */

/* Bytes of the UTF-8 character that begins at `at`; 0: none does. A longer form
 * than is needed is none, nor are halves of UTF-16's pairs, or what is above
 * U+10FFFF. */
static size_t utf8_bytes(const unsigned char *at, size_t size)
{
    const unsigned char first = at[0];
    const size_t n = first < 0x80   ? 1
                     : first < 0xc2 ? 0
                     : first < 0xe0 ? 2
                     : first < 0xf0 ? 3
                     : first < 0xf5 ? 4
                                    : 0;

    if (n == 0 || n > size)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    if ((first == 0xe0 && at[1] < 0xa0) || (first == 0xed && at[1] > 0x9f) ||
        (first == 0xf0 && at[1] < 0x90) || (first == 0xf4 && at[1] > 0x8f))
        return 0;
    return n;
}

static bool is_control(char c, bool in_string)
{
    return (unsigned char)c < 0x20 &&
           (in_string || (c != '\t' && c != '\r' && c != '\n'));
}

fleet_status fl_json_check_text(const char *text, size_t size, const char *name)
{
    bool in_string = false;
    size_t n;

    for (size_t i = 0; i < size; i += n) {
        n = 1;
        if (is_control(text[i], in_string))
            return fl_fail(FLEET_ECONFIG,
                           "%s:%d: a control character (0x%02x)%s", name,
                           line_of(text, text + i), (unsigned)text[i],
                           in_string ? " in a string: expected \\u and four "
                                       "digits, or \\n, \\t, ..."
                                     : "");
        if (in_string)
            n = utf8_bytes((const unsigned char *)text + i, size - i);
        if (n == 0)
            return fl_fail(FLEET_ECONFIG,
                           "%s:%d: a string that is not UTF-8 (0x%02x)", name,
                           line_of(text, text + i),
                           (unsigned)(unsigned char)text[i]);
        if (text[i] == '"')
            in_string = !in_string;
        else if (in_string && text[i] == '\\' && i + 1 < size &&
                 (text[i + 1] == '"' || text[i + 1] == '\\'))
            n = 2;
    }
    return FLEET_OK;
}

fleet_status fl_json_check_string(const char *text)
{
    size_t size = strlen(text), n;

    for (size_t i = 0; i < size; i += n) {
        n = utf8_bytes((const unsigned char *)text + i, size - i);
        if (n == 0)
            return fl_fail(FLEET_ECONFIG, "a string that is not UTF-8 (0x%02x)",
                           (unsigned)(unsigned char)text[i]);
    }
    return FLEET_OK;
}

void fl_json_free(fl_json *json)
{
    cJSON_Delete(json);
}

/* --- an observer ---------------------------------------------------------- */

static _Thread_local fl_asked_observer *observer;
static _Thread_local void *observer_arg;

void fl_at_observe(fl_asked_observer *new, void *arg)
{
    observer = new;
    observer_arg = arg;
}

static void tell(const fl_at *at, fl_asked_kind kind, double low, double high,
                 const char *const *names)
{
    if (observer)
        observer(observer_arg, at, &(fl_asked){kind, low, high, names});
}

/* --- paths ---------------------------------------------------------------- */

fl_at fl_at_root(const fl_json *json)
{
    return (fl_at){.json = json};
}

fl_at fl_at_key(const fl_at *object, const char *key)
{
    fl_at at = {.json = cJSON_GetObjectItemCaseSensitive(object->json, key)};

    snprintf(at.path, sizeof at.path, "%.150s%s%.40s", object->path,
             *object->path ? "." : "", key);
    return at;
}

static fl_at element(const fl_at *array, const fl_json *json, int index)
{
    fl_at at = {.json = json, .index = index};

    snprintf(at.path, sizeof at.path, "%.180s[%d]", array->path, index);
    return at;
}

fl_at fl_at_index(const fl_at *array, int index)
{
    return element(array, cJSON_GetArrayItem(array->json, index), index);
}

fl_at fl_at_first(const fl_at *array)
{
    return element(array,
                   cJSON_IsArray(array->json) ? array->json->child : NULL, 0);
}

void fl_at_next(const fl_at *array, fl_at *e)
{
    *e = element(array, e->json->next, e->index + 1);
}

static fl_at member_of(const fl_at *object, const fl_json *json, int index)
{
    fl_at at = fl_at_key(object, json ? json->string : "");

    at.json = json;
    at.index = index;
    return at;
}

fl_at fl_at_first_member(const fl_at *object)
{
    bool is_object = cJSON_IsObject(object->json);

    return member_of(object, is_object ? object->json->child : NULL, 0);
}

void fl_at_next_member(const fl_at *object, fl_at *member)
{
    *member = member_of(object, member->json->next, member->index + 1);
}

const char *fl_at_name(const fl_at *member)
{
    return member->json->string;
}

int fl_at_count(const fl_at *array)
{
    return cJSON_GetArraySize(array->json);
}

bool fl_at_is_array(const fl_at *at)
{
    return cJSON_IsArray(at->json);
}

bool fl_at_is_object(const fl_at *at)
{
    return cJSON_IsObject(at->json);
}

bool fl_at_is_string(const fl_at *at)
{
    return cJSON_IsString(at->json);
}

bool fl_at_is_null(const fl_at *at)
{
    return cJSON_IsNull(at->json);
}

/* --- values --------------------------------------------------------------- */

static const char *path_of(const fl_at *at)
{
    return *at->path ? at->path : "the whole text";
}

fleet_status fl_at_expected(const fl_at *at, const char *what)
{
    char *got;

    if (!at->json)
        return fl_fail(FLEET_ECONFIG, "%s: expected %s, got nothing",
                       path_of(at), what);
    got = cJSON_PrintUnformatted(at->json);
    fl_fail(FLEET_ECONFIG, "%s: expected %s, got %.100s", path_of(at), what,
            got ? got : "?");
    cJSON_free(got);
    return FLEET_ECONFIG;
}

static fleet_status unknown_key(const fl_at *at, const char *const *known)
{
    const char *meant = fl_text_nearest(fl_at_name(at), known);
    fl_text list = {0};

    for (; *known; known++)
        fl_text_add(&list, "%s%s", list.length ? ", " : "", *known);
    if (meant)
        fl_fail(FLEET_ECONFIG,
                "%s: unknown key: did you mean \"%s\"? Expected one of: %s",
                at->path, meant, fl_text_chars(&list));
    else
        fl_fail(FLEET_ECONFIG, "%s: unknown key; expected one of: %s", at->path,
                fl_text_chars(&list));
    fl_text_done(&list);
    return FLEET_ECONFIG;
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

fleet_status fl_at_words(const fl_at *at, size_t size, void *data, int64_t *n)
{
    const char *text = NULL;
    unsigned char *to;
    size_t length;

    FL_TRY(fl_at_required(at));
    FL_TRY(fl_at_string(at, &text));
    length = strlen(text);
    if (length % (2 * size) != 0)
        return fl_fail(FLEET_EFORMAT, "%s: %zu hex digits are no whole numbers",
                       at->path, length);
    FL_TRY(FL_NEW(&to, length / 2 + 1));
    *(void **)data = to;
    *n = (int64_t)(length / 2 / size);
    for (size_t i = 0; i < length / 2; i++) {
        int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);

        if (high < 0 || low < 0)
            return fl_fail(FLEET_EFORMAT, "%s: expected hex digits, got '%.2s'",
                           at->path, text + 2 * i);
        to[i] = (unsigned char)(high << 4 | low);
    }
    return FLEET_OK;
}

fleet_status fl_at_keys(const fl_at *at, const char *const *known)
{
    tell(at, FL_ASKED_KEYS, 0, 0, known);
    if (!at->json)
        return FLEET_OK;
    if (!cJSON_IsObject(at->json))
        return fl_at_expected(at, "an object");
    for (const cJSON *c = at->json->child; c; c = c->next) {
        fl_at child = fl_at_key(at, c->string);
        const char *const *k = known;

        while (*k && strcmp(c->string, *k) != 0)
            k++;
        if (!*k)
            return unknown_key(&child, known);
        if (child.json != c)
            return fl_fail(FLEET_ECONFIG, "%s: stands twice", child.path);
    }
    return FLEET_OK;
}

fleet_status fl_at_any_keys(const fl_at *at)
{
    tell(at, FL_ASKED_MEMBERS, 0, 0, NULL);
    return !at->json || cJSON_IsObject(at->json)
               ? FLEET_OK
               : fl_at_expected(at, "an object");
}

fleet_status fl_at_array(const fl_at *at)
{
    tell(at, FL_ASKED_LIST, 0, 0, NULL);
    return !at->json || cJSON_IsArray(at->json)
               ? FLEET_OK
               : fl_at_expected(at, "an array");
}

fleet_status fl_at_required(const fl_at *at)
{
    tell(at, FL_ASKED_REQUIRED, 0, 0, NULL);
    return at->json ? FLEET_OK
                    : fl_fail(FLEET_ECONFIG, "%s: missing", path_of(at));
}

fleet_status fl_at_bool(const fl_at *at, bool *out)
{
    tell(at, FL_ASKED_BOOL, 0, 0, NULL);
    if (!at->json)
        return FLEET_OK;
    if (!cJSON_IsBool(at->json))
        return fl_at_expected(at, "true or false");
    *out = cJSON_IsTrue(at->json);
    return FLEET_OK;
}

fleet_status fl_at_int(const fl_at *at, int64_t low, int64_t high, int64_t *out)
{
    char what[100];
    double x;

    tell(at, FL_ASKED_INT, (double)low, (double)high, NULL);
    if (!at->json)
        return FLEET_OK;
    x = at->json->valuedouble;
    /* beyond 2^53 a double no longer tells integers apart */
    if (cJSON_IsNumber(at->json) && x == floor(x) && fabs(x) <= 0x1p53 &&
        (int64_t)x >= low && (int64_t)x <= high) {
        *out = (int64_t)x;
        return FLEET_OK;
    }
    snprintf(what, sizeof what, "an integer from %" PRId64 " to %" PRId64, low,
             high);
    return fl_at_expected(at, what);
}

fleet_status fl_at_double(const fl_at *at, double low, double high, double *out)
{
    fl_text what = {0};
    double x;

    tell(at, FL_ASKED_NUMBER, low, high, NULL);
    if (!at->json)
        return FLEET_OK;
    x = at->json->valuedouble;
    if (cJSON_IsNumber(at->json) && x >= low && x <= high) {
        *out = x;
        return FLEET_OK;
    }
    fl_text_add(&what, "a number from %.9g to %.9g", low, high);
    fl_at_expected(at, fl_text_chars(&what));
    fl_text_done(&what);
    return FLEET_ECONFIG;
}

fleet_status fl_at_float(const fl_at *at, float *out)
{
    double x = (double)*out;

    FL_TRY(fl_at_double(at, -(double)FLT_MAX, (double)FLT_MAX, &x));
    *out = (float)x;
    return FLEET_OK;
}

fleet_status fl_at_string(const fl_at *at, const char **out)
{
    tell(at, FL_ASKED_STRING, 0, 0, NULL);
    if (!at->json)
        return FLEET_OK;
    if (!cJSON_IsString(at->json))
        return fl_at_expected(at, "a string");
    *out = at->json->valuestring;
    return FLEET_OK;
}

fleet_status fl_at_hex(const fl_at *at, uint64_t *out)
{
    const char *text = "";
    char *end;

    FL_TRY(fl_at_required(at));
    FL_TRY(fl_at_string(at, &text));
    *out = strtoull(text, &end, 16);
    return strlen(text) == 16 && *end == 0
               ? FLEET_OK
               : fl_at_expected(at, "16 hex digits");
}

fleet_status fl_at_choice(const fl_at *at, const char *const *names, int *out)
{
    fl_text list = {0};

    tell(at, FL_ASKED_CHOICE, 0, 0, names);
    if (!at->json)
        return FLEET_OK;
    if (cJSON_IsString(at->json))
        for (int i = 0; names[i]; i++)
            if (strcmp(names[i], at->json->valuestring) == 0) {
                *out = i;
                return FLEET_OK;
            }
    for (int i = 0; names[i]; i++)
        fl_text_add(&list, "%s\"%s\"", i ? ", " : "one of ", names[i]);
    fl_at_expected(at, fl_text_chars(&list));
    fl_text_done(&list);
    return FLEET_ECONFIG;
}

void fl_json_use_allocator(void)
{
    cJSON_InitHooks(&(cJSON_Hooks){.malloc_fn = fl_alloc, .free_fn = fl_free});
}
