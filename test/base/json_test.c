/* json_test.c - JSON: what is read, what is refused and where, what is
 * written. */
#define SUITE json
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json/json_write.h"
#include "base/memory.h"
#include "base/text.h"

static fl_json *parse(const char *text)
{
    fl_json *json = NULL;

    CHECK_OK(fl_json_parse(text, strlen(text), "t.json", &json));
    return json;
}

/* Parsing fails, and says so with these words. */
static void check_refused(const char *text, size_t size, const char *words)
{
    fl_json *json = (fl_json *)&json;

    CHECK_STATUS(fl_json_parse(text, size, "t.json", &json), FLEET_ECONFIG);
    CHECK_TEXT(fleet_last_error(), words);
    CHECK(json == NULL);
}

static void check_malformed(const char *text, const char *words)
{
    check_refused(text, strlen(text), words);
}

static void check_fault(const char *text, const char *place,
                        const char *expected, const char *got)
{
    char words[200];

    snprintf(words, sizeof words,
             "t.json:%s: not valid JSON: expected %s, got %s", place, expected,
             got);
    check_malformed(text, words);
}

TEST(malformed_text_is_refused_with_its_place_and_what_was_expected)
{
    check_fault("", "1:1", "a value", "the end of the text");
    check_fault("{\"a\": 1,\n\"b\" 2}", "2:5", "':' after the key", "'2'");
    check_fault("{\n\n\n  \"a\": tru}", "4:8", "a value", "'tru'");
    check_fault("{\"a\": \"\n", "1:7",
                "a string that ends: it has no second \"", "'\"'");
    check_fault("[1, 2", "1:6", "',' or ']'", "the end of the text");
    check_fault("[1, 2,]", "1:7", "a value after the ','", "']'");
    check_fault("[1 2]", "1:4", "',' or ']'", "'2'");
    check_fault("{\"a\": 1", "1:8", "',' or '}'", "the end of the text");
    check_fault("{\"a\": 1,}", "1:9", "a key in double quotes after the ','",
                "'}'");
    check_fault("{epochs: 3}", "1:2", "a key in double quotes, or '}'",
                "'epochs'");
    check_fault("{\"a\": 'b'}", "1:7", "a value (strings have double quotes)",
                "'\x27'");
    check_fault("{\"a\": -}", "1:8", "a digit", "'}'");
    check_fault("[1.e3 x]", "1:4", "a digit", "'e3'");
    check_fault("[1e]", "1:4", "a digit", "']'");
    check_fault("[\xe9]", "1:2", "a value", "the byte 0xe9");
    check_fault("[\"\xc3\xa9\xe2\x82\xac\" x]", "1:7", "',' or ']'", "'x'");
}

TEST(what_people_write_into_json_is_refused_by_name)
{
    static const char escape[] =
        "an escape such as \\n, \\\", \\\\, or \\u and "
        "four digits";

    check_fault("{ // the model\n\"a\": 1}", "1:3",
                "a key (JSON has no comments)", "'/'");
    check_fault("{\"a\": 1, # one\n \"b\": 2}", "1:10",
                "a key (JSON has no comments)", "'#'");
    check_fault("[/* none */]", "1:2", "a value (JSON has no comments)", "'/'");
    check_fault("{\"path\": \"C:\\data\"}", "1:13", escape, "'\\'");
    check_fault("[\"\\u12g4\"]", "1:3", escape, "'\\'");
    check_fault("[NaN]", "1:2", "a value", "'NaN'");
    check_fault("[True]", "1:2", "a value", "'True'");
    check_fault("[01]", "1:3", "',' or ']'", "'1'");
    check_fault("[+1]", "1:2", "a value", "'+1'");
    check_fault("[.5]", "1:2", "a value", "'.5'");
}

TEST(values_that_are_too_deep_are_refused)
{
    enum { DEEP = 1200 };
    char text[DEEP + 1];

    memset(text, '[', DEEP);
    text[DEEP] = 0;
    check_fault(text, "1:1001",
                "at most 1000 values, each inside the one before", "'['");
}

TEST(text_after_the_end_is_refused_with_its_line)
{
    check_malformed("{} x", "t.json:1:4: text after the end of the JSON value");
    check_malformed("{}\n \n]",
                    "t.json:3:1: text after the end of the JSON value");
    check_malformed("1 2", "t.json:1:3: text after the end of the JSON value");
}

TEST(a_zero_byte_after_the_end_is_text)
{
    check_refused("{}\0", 3,
                  "t.json:1:3: text after the end of the JSON value");
}

TEST(an_escaped_zero_does_not_cut_a_string)
{
    check_malformed("{\"a\":\n\"b\\u0000c\"}", "t.json:2: \\u0000 in a string");
    check_malformed("{\"a\\u0000\": 1}", "t.json:1: \\u0000 in a string");
    fl_json_free(parse("{\"a\": \"\\\\u0000\"}")); /* a backslash */
}

TEST(blanks_after_the_end_are_not)
{
    fl_json_free(parse("{} \t\r\n"));
}

/* --- text that a person wrote --------------------------------------------- */

static void check_text_refused(const char *text, size_t size, const char *words)
{
    CHECK_STATUS(fl_json_check_text(text, size, "t.json"), FLEET_ECONFIG);
    CHECK_TEXT(fleet_last_error(), words);
}

static void check_not_utf8(const char *inside, const char *byte)
{
    char text[40], words[80];

    snprintf(text, sizeof text, "[1,\n\"\\\"%s\"]", inside);
    snprintf(words, sizeof words, "t.json:2: a string that is not UTF-8 (%s)",
             byte);
    check_text_refused(text, strlen(text), words);
}

TEST(control_characters_are_refused_with_their_line)
{
    static const char in_string[] =
        " in a string: expected \\u and four digits, or \\n, \\t, ...";
    char words[200];

    snprintf(words, sizeof words, "t.json:2: a control character (0x00)%s",
             in_string);
    check_text_refused("{\n\"a\": \"b\0c\"}", 12, words);
    snprintf(words, sizeof words, "t.json:1: a control character (0x09)%s",
             in_string);
    check_text_refused("[\"\t\"]", 5, words);
    snprintf(words, sizeof words, "t.json:1: a control character (0x1f)%s",
             in_string);
    check_text_refused("[\"\\\\\x1f\"]", 7, words);
    check_text_refused("[\n1,\x01 2]", 7,
                       "t.json:2: a control character (0x01)");
    check_text_refused("[]\0", 3, "t.json:1: a control character (0x00)");
}

TEST(strings_that_are_not_utf8_are_refused_with_their_line)
{
    check_not_utf8("caf\xe9", "0xe9");          /* ISO 8859-1 */
    check_not_utf8("\x80", "0x80");             /* goes on without a begin */
    check_not_utf8("\xc0\x80", "0xc0");         /* longer than needed */
    check_not_utf8("\xe0\x9f\xbf", "0xe0");     /* longer than needed */
    check_not_utf8("\xed\xa0\x80", "0xed");     /* half of a pair */
    check_not_utf8("\xf4\x90\x80\x80", "0xf4"); /* beyond the last one */
    check_not_utf8("\xf0\x8f\xbf\xbf", "0xf0");
    check_not_utf8("\xff", "0xff");
    check_text_refused("[\"\xe2\x82", 4,
                       "t.json:1: a string that is not UTF-8 (0xe2)");
}

TEST(text_that_is_as_it_should_be_passes)
{
    static const char *const texts[] = {
        "",
        "{}\r\n\t ",
        "[\"\\\"\", \"\\\\\"]\n",
        "[\"\\u0001 \x7f\"]",
        "[\"\xc3\xa9 \xe2\x82\xac \xed\x9f\xbf \xf0\x9f\x98\x80\"]",
        "[\"\xf4\x8f\xbf\xbf\"]",
        "\xef\xbb\xbf{}"};

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        CHECK_OK(fl_json_check_text(texts[i], strlen(texts[i]), "t.json"));
}

/* --- paths --------------------------------------------------------------- */

static const char *const nested =
    "{\"dataset\": {\"train\": [\"a\", 5], \"batch\": true, \"n\": 1.5}}";

/* The value at dataset.KEY, or at dataset.KEY[i]. */
static fl_at at(const fl_json *json, const char *key, int i)
{
    fl_at root = fl_at_root(json), dataset = fl_at_key(&root, "dataset");
    fl_at value = fl_at_key(&dataset, key);

    return i < 0 ? value : fl_at_index(&value, i);
}

TEST(a_wrong_type_is_named_with_path_and_value)
{
    fl_json *json = parse(nested);
    fl_at train = at(json, "train", -1), second = at(json, "train", 1);
    fl_at batch = at(json, "batch", -1);
    const char *text = "unchanged";
    int64_t n = 7;
    double x = 7;
    bool b = true;

    CHECK_STATUS(fl_at_string(&second, &text), FLEET_ECONFIG);
    CHECK_TEXT(fleet_last_error(),
               "dataset.train[1]: expected a string, got 5");
    CHECK_STATUS(fl_at_int(&batch, 0, 9, &n), FLEET_ECONFIG);
    CHECK_TEXT(fleet_last_error(),
               "dataset.batch: expected an integer from 0 to 9, got true");
    CHECK_STATUS(fl_at_double(&train, 0, 9, &x), FLEET_ECONFIG);
    CHECK_TEXT(fleet_last_error(),
               "dataset.train: expected a number from 0 to 9, got [\"a\",5]");
    CHECK_STATUS(fl_at_bool(&second, &b), FLEET_ECONFIG);
    CHECK_TEXT(fleet_last_error(),
               "dataset.train[1]: expected true or false, got 5");
    CHECK_STATUS(fl_at_array(&batch), FLEET_ECONFIG);
    CHECK_TEXT(fleet_last_error(),
               "dataset.batch: expected an array, got true");
    CHECK_TEXT(text, "unchanged");
    CHECK(n == 7 && x == 7 && b);
    fl_json_free(json);
}

TEST(a_value_out_of_range_is_named_with_the_range)
{
    fl_json *json = parse(nested);
    fl_at second = at(json, "train", 1), n_at = at(json, "n", -1);
    int64_t n = 7;
    double x = 7;

    CHECK_FAILS(fl_at_int(&second, 6, 9, &n), FLEET_ECONFIG,
                "dataset.train[1]: expected an integer from 6 to 9, got 5");
    CHECK_FAILS(fl_at_int(&n_at, 0, 9, &n), FLEET_ECONFIG,
                "dataset.n: expected an integer from 0 to 9, got 1.5");
    CHECK_FAILS(fl_at_double(&n_at, 2, 3, &x), FLEET_ECONFIG,
                "dataset.n: expected a number from 2 to 3, got 1.5");
    CHECK_OK(fl_at_int(&second, 5, 5, &n));
    CHECK_OK(fl_at_double(&n_at, 1.5, 1.5, &x));
    CHECK(n == 5 && x == 1.5);
    fl_json_free(json);
}

TEST(the_whole_text_has_a_name_too)
{
    fl_json *json = parse("[]");
    fl_at root = fl_at_root(json);

    CHECK_FAILS(fl_at_keys(&root, (const char *const[]){"a", NULL}),
                FLEET_ECONFIG, "the whole text: expected an object, got []");
    fl_json_free(json);
}

TEST(an_unknown_key_is_named_with_those_that_are_known)
{
    fl_json *json = parse(nested);
    fl_at root = fl_at_root(json), dataset = fl_at_key(&root, "dataset");

    CHECK_STATUS(
        fl_at_keys(&dataset, (const char *const[]){"train", "n", NULL}),
        FLEET_ECONFIG);
    CHECK_TEXT(fleet_last_error(),
               "dataset.batch: unknown key; expected one of: train, n");
    CHECK_OK(fl_at_keys(&dataset,
                        (const char *const[]){"train", "n", "batch", NULL}));
    fl_json_free(json);
}

/* What a path leads to becomes 7; the text that there is then. */
static void check_set(const char *text, const char *path, const char *becomes)
{
    fl_json *json = parse(text);
    char *now;

    CHECK_OK(fl_json_set(json, path, fl_json_int(7)));
    now = fl_json_print(json, false);
    CHECK_TEXT(now, becomes);
    fl_free(now);
    fl_json_free(json);
}

TEST(a_value_is_put_where_a_path_leads)
{
    check_set("{\"a\":1,\"b\":2}", "a", "{\"a\":7,\"b\":2}");
    check_set("{\"a\":1}", "b", "{\"a\":1,\"b\":7}");
    check_set("{}", "a.b.c", "{\"a\":{\"b\":{\"c\":7}}}");
    check_set("{\"a\":[1,[2,{\"b\":3}]]}", "a[1][1].b",
              "{\"a\":[1,[2,{\"b\":7}]]}");
    check_set("{\"a\":[1,2,3]}", "a[2]", "{\"a\":[1,2,7]}");
    check_set("[{},{}]", "[1].a", "[{},{\"a\":7}]");
}

TEST(a_path_that_leads_nowhere_changes_nothing)
{
    static const struct {
        const char *path, *words;
    } wrong[] = {{"", ": expected names with dots between them, and [number] "
                      "for elements"},
                 {"a..b", "a..b: expected names"},
                 {"a.", "a.: expected names"},
                 {".a", ".a: expected names"},
                 {"a.[0]", "a.[0]: expected names"},
                 {"a[0", "a[0: expected names"},
                 {"a[-1]", "a[-1]: expected names"},
                 {"a[0]b", "a[0]b: expected names"},
                 {"a[2]", "a: expected an element 2, but it has 2"},
                 {"a[0].b", "a[0]: expected it to be an object"},
                 {"n.b", "n: expected it to be an object"},
                 {"n[0]", "n: expected it to be an array"},
                 {"new[0]", "new: expected it to be an array"},
                 {"new.a[0].b", "new.a: expected it to be an array"},
                 {"[0]", "the whole text: expected it to be an array"}};
    static const char text[] = "{\"a\":[1,2],\"n\":3}";

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fl_json *json = parse(text);
        char *now;

        CHECK_FAILS(fl_json_set(json, wrong[i].path, fl_json_int(7)),
                    FLEET_ECONFIG, wrong[i].words);
        now = fl_json_print(json, false);
        CHECK_TEXT(now, text);
        fl_free(now);
        fl_json_free(json);
    }
}

TEST(a_mistyped_name_is_near_to_what_was_meant)
{
    static const char *const names[] = {"train", "test", "batch_size", NULL};

    CHECK_TEXT(fl_text_nearest("tran", names), "train");
    CHECK_TEXT(fl_text_nearest("trian", names), "train");
    CHECK_TEXT(fl_text_nearest("tests", names), "test");
    CHECK_TEXT(fl_text_nearest("batchsize", names), "batch_size");
    CHECK_TEXT(fl_text_nearest("batch_szie", names), "batch_size");
    CHECK(fl_text_nearest("batch", names) == NULL);
    CHECK(fl_text_nearest("t", names) == NULL);
    CHECK(fl_text_nearest("", names) == NULL);
}

TEST(a_key_that_stands_twice_is_refused)
{
    fl_json *json = parse("{\"model\": {\"dim\": 1, \"dim\": 2}}");
    fl_at root = fl_at_root(json), model = fl_at_key(&root, "model");

    CHECK_STATUS(fl_at_keys(&model, (const char *const[]){"dim", NULL}),
                 FLEET_ECONFIG);
    CHECK_TEXT(fleet_last_error(), "model.dim: stands twice");
    fl_json_free(json);
}

TEST(keys_are_told_apart_by_case)
{
    fl_json *json = parse("{\"Dim\": 1}");
    fl_at root = fl_at_root(json), dim = fl_at_key(&root, "dim");

    CHECK(dim.json == NULL);
    CHECK_FAILS(fl_at_keys(&root, (const char *const[]){"dim", NULL}),
                FLEET_ECONFIG, "Dim: unknown key");
    fl_json_free(json);
}

TEST(what_is_absent_leaves_the_default)
{
    fl_json *json = parse("{}");
    fl_at root = fl_at_root(json), none = fl_at_key(&root, "a");
    fl_at deeper = fl_at_key(&none, "b"), element = fl_at_index(&deeper, 3);
    const char *text = "default";
    int64_t n = 7;
    double x = 7;
    bool b = true;
    int choice = 7;

    CHECK_OK(fl_at_int(&none, 0, 1, &n));
    CHECK_OK(fl_at_double(&deeper, 0, 1, &x));
    CHECK_OK(fl_at_bool(&element, &b));
    CHECK_OK(fl_at_string(&none, &text));
    CHECK_OK(fl_at_choice(&none, (const char *const[]){"x", NULL}, &choice));
    CHECK_OK(fl_at_keys(&none, (const char *const[]){NULL}));
    CHECK_OK(fl_at_array(&none));
    CHECK(n == 7 && x == 7 && b && choice == 7 && strcmp(text, "default") == 0);
    CHECK_INT(fl_at_count(&none), 0);
    CHECK_FAILS(fl_at_required(&element), FLEET_ECONFIG, "a.b[3]: missing");
    CHECK_FAILS(fl_at_expected(&none, "a file"), FLEET_ECONFIG,
                "a: expected a file, got nothing");
    fl_json_free(json);
}

TEST(a_choice_is_one_of_its_names)
{
    static const char *const names[] = {"csv", "idx", NULL};
    fl_json *json = parse("{\"format\": \"idx\", \"other\": \"xml\"}");
    fl_at root = fl_at_root(json), format = fl_at_key(&root, "format");
    fl_at other = fl_at_key(&root, "other");
    int choice = -1;

    CHECK_OK(fl_at_choice(&format, names, &choice));
    CHECK_INT(choice, 1);
    CHECK_FAILS(fl_at_choice(&other, names, &choice), FLEET_ECONFIG,
                "other: expected one of \"csv\", \"idx\", got \"xml\"");
    fl_json_free(json);
}

/* In a time that does not grow with the square of their number. */
TEST(elements_come_in_turn_with_their_places)
{
    enum { N = 1000000 };
    fl_json *list = fl_json_array(), *root = fl_json_object();
    fl_at at, first, e;
    int n = 0;

    for (int i = 0; i < N; i++)
        CHECK_OK(fl_json_append(list, fl_json_bool(i % 3 == 0)));
    CHECK_OK(fl_json_put(root, "list", list));
    first = fl_at_root(root);
    at = fl_at_key(&first, "list");
    for (e = fl_at_first(&at); e.json; fl_at_next(&at, &e)) {
        bool value;

        CHECK_OK(fl_at_bool(&e, &value));
        CHECK(value == (n % 3 == 0) && e.index == n++);
        if (n == 7)
            CHECK_TEXT(e.path, "list[6]");
    }
    CHECK_INT(n, N);
    e = fl_at_first(&first); /* no array */
    CHECK(e.json == NULL);
    fl_json_free(root);
}

TEST(a_path_that_is_too_long_is_cut)
{
    char key[1001];
    fl_json *json = parse("{}");
    fl_at a = fl_at_root(json);

    memset(key, 'k', sizeof key);
    key[1000] = 0;
    for (int i = 0; i < 10; i++) {
        fl_at next = fl_at_key(&a, key);

        a = fl_at_index(&next, i);
    }
    CHECK(strlen(a.path) < sizeof a.path);
    fl_json_free(json);
}

/* --- numbers ------------------------------------------------------------- */

static fleet_status read_int(const char *text, int64_t *out)
{
    fl_json *json = parse(text);
    fl_at root = fl_at_root(json);
    fleet_status status = fl_at_int(&root, INT64_MIN, INT64_MAX, out);

    fl_json_free(json);
    return status;
}

TEST(integers_are_exact_or_refused)
{
    int64_t n = 0;

    CHECK_OK(read_int("9007199254740991", &n));
    CHECK_INT(n, 9007199254740991);
    CHECK_OK(read_int("-9007199254740992", &n));
    CHECK_INT(n, -9007199254740992);
    CHECK_STATUS(read_int("9007199254740994", &n), FLEET_ECONFIG);
    CHECK_STATUS(read_int("1e300", &n), FLEET_ECONFIG);
    CHECK_STATUS(read_int("1e999", &n), FLEET_ECONFIG);
    CHECK_OK(read_int("2e3", &n));
    CHECK_INT(n, 2000);
}

TEST(what_is_written_is_exact)
{
    fl_json *o = fl_json_object(), *list = fl_json_array();
    char *text;

    CHECK_OK(fl_json_put(o, "max", fl_json_int(INT64_MAX)));
    CHECK_OK(fl_json_put(o, "min", fl_json_int(INT64_MIN)));
    CHECK_OK(fl_json_put(o, "hash", fl_json_hex(0xff)));
    CHECK_OK(fl_json_put(o, "pi", fl_json_double(3.141592653589793, 17)));
    CHECK_OK(fl_json_put(o, "short", fl_json_double(0.90612, 3)));
    CHECK_OK(fl_json_put(o, "nan", fl_json_double((double)NAN, 6)));
    CHECK_OK(fl_json_put(o, "inf", fl_json_double((double)INFINITY, 6)));
    CHECK_OK(fl_json_put(o, "list", list));
    CHECK_OK(fl_json_append(list, fl_json_bool(true)));
    CHECK_OK(fl_json_append(list, fl_json_string("a \"b\"\n\x01")));
    text = fl_json_print(o, false);
    CHECK_TEXT(text, "{\"max\":9223372036854775807,"
                     "\"min\":-9223372036854775808,"
                     "\"hash\":\"00000000000000ff\","
                     "\"pi\":3.1415926535897931,\"short\":0.906,"
                     "\"nan\":null,\"inf\":null,"
                     "\"list\":[true,\"a \\\"b\\\"\\n\\u0001\"]}");
    fl_free(text);
    fl_json_free(o);
}

TEST(floats_survive_writing_and_reading)
{
    for (uint32_t bits = 1; bits < 0x7f800000; bits += 0x00123457) {
        float x, back;
        double read = 0;
        char *text;
        fl_json *json;

        memcpy(&x, &bits, sizeof x);
        json = fl_json_double((double)x, 9);
        text = fl_json_print(json, false);
        fl_json_free(json);
        json = parse(text);
        fl_at root = fl_at_root(json);
        CHECK_OK(fl_at_double(&root, 0, 1e39, &read));
        back = (float)read;
        CHECK(memcmp(&back, &x, sizeof x) == 0);
        fl_json_free(json);
        fl_free(text);
    }
}

TEST(a_copy_is_one_of_its_own)
{
    fl_json *json = parse(nested), *copy = fl_json_copy(json);
    char *text;

    fl_json_free(json);
    text = fl_json_print(copy, false);
    CHECK_TEXT(text, "{\"dataset\":{\"train\":[\"a\",5],\"batch\":true,"
                     "\"n\":1.5}}");
    fl_free(text);
    fl_json_free(copy);
}

/* --- memory -------------------------------------------------------------- */

static fleet_status build_and_print(char **text)
{
    fl_json *o = fl_json_object(), *list = fl_json_array();
    fleet_status status = fl_json_put(o, "list", list);

    if (status == FLEET_OK)
        status = fl_json_append(list, fl_json_hex(5));
    if (status == FLEET_OK)
        status = fl_json_put(o, "x", fl_json_double(0.5, 6));
    *text = status == FLEET_OK ? fl_json_print(o, true) : NULL;
    fl_json_free(o);
    return *text ? FLEET_OK : FLEET_ENOMEM;
}

TEST(writing_survives_every_allocation_that_fails)
{
    fleet_status status = FLEET_ENOMEM;
    char *text = NULL;
    int64_t n = 0;

    fl_json_use_allocator();
    while (status != FLEET_OK) {
        fl_memory_fail_at(++n, false);
        status = build_and_print(&text);
        if (status != FLEET_OK)
            CHECK_CONTAINS(fleet_last_error(), "out of memory");
    }
    fl_memory_fail_at(0, false);
    CHECK(n > 8);
    CHECK_CONTAINS(text, "\"list\":\t[\"0000000000000005\"]");
    fl_free(text);
}

TEST(reading_survives_every_allocation_that_fails)
{
    fl_json *json = NULL;
    int64_t n = 0;

    fl_json_use_allocator();
    while (!json) {
        fl_memory_fail_at(++n, false);
        if (fl_json_parse(nested, strlen(nested), "t", &json) != FLEET_OK)
            CHECK(json == NULL);
    }
    CHECK(n > 10);
    fl_json_free(json);
}
