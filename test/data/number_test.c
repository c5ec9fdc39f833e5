/* number_test.c - numbers from text: the bits of strtof(), strtod() and
 * strtoull(), whatever the text and the locale. */
#define SUITE number
#include "data_kit.h"
#include "test.h"

#include <float.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/text/number.h"

/* A text with what the parsers need around it: junk that looks like numbers. */
typedef struct padded {
    char bytes[FL_TEXT_PAD + 2000 + FL_TEXT_PAD];
} padded;

static char *place(padded *p)
{
    memset(p->bytes, '7', sizeof p->bytes);
    return p->bytes + FL_TEXT_PAD;
}

/* As the header says it; the value itself is strtod()'s business. */
static bool is_number(const char *s, const char *end)
{
    size_t n, digits = 0;

    s += s < end && (*s == '-' || *s == '+');
    n = strspn(s, "0123456789");
    digits += n;
    s += n;
    if (*s == '.') {
        n = strspn(++s, "0123456789");
        digits += n;
        s += n;
    }
    if (digits == 0)
        return false;
    if (*s == 'e' || *s == 'E') {
        s++;
        s += *s == '-' || *s == '+';
        n = strspn(s, "0123456789");
        s += n;
        if (n == 0)
            return false;
    }
    return s == end;
}

/* The text at s, which ends in a 0, against the C library. */
static void check(char *s)
{
    char *end = s + strlen(s);
    bool number = is_number(s, end);
    float f = 0, want_f = strtof(s, NULL);
    double d = 0, want_d = strtod(s, NULL);
    bool ok_f, ok_d;

    *end = '7'; /* the end is told by its place alone */
    ok_f = fl_parse_float(s, end, &f);
    ok_d = fl_parse_double(s, end, &d);
    *end = 0;
    if (ok_f != (number && isfinite(want_f)) ||
        ok_d != (number && isfinite(want_d)))
        test_fail(__FILE__, __LINE__, "\"%s\": accepted %d, %d", s, ok_f, ok_d);
    if (ok_f && memcmp(&f, &want_f, sizeof f) != 0)
        test_fail(__FILE__, __LINE__, "\"%s\" is %a, not %a", s, (double)f,
                  (double)want_f);
    if (ok_d && memcmp(&d, &want_d, sizeof d) != 0)
        test_fail(__FILE__, __LINE__, "\"%s\" is %a, not %a", s, d, want_d);
}

static void check_text_of(const char *text)
{
    padded p;
    char *s = place(&p);

    strcpy(s, text);
    check(s);
}

static const char *const odd_texts[] = {
    "0",
    "-0",
    "+0",
    "1",
    "-1",
    "+1",
    "0.5",
    ".5",
    "5.",
    "-.5",
    "+5.",
    "00012",
    "0.1",
    "0.2",
    "0.3",
    "1e5",
    "1E5",
    "1e+5",
    "1e-5",
    "123456789",
    "12345678",
    "1234567.8",
    "-1234567",
    "-12345678",
    "-123.4567",
    "1e400",
    "-1e400",
    "1e-400",
    "3.4028235e38",
    "3.4028236e38",
    "3.5e38",
    "1e39",
    "1.7976931348623157e308",
    "1.7976931348623159e308",
    "4.9e-324",
    "2.4e-324",
    "2.5e-324",
    "1.4e-45",
    "0.7e-45",
    "0.8e-45",
    "16777217",
    "16777219",
    "33554434",
    "16777217.0",
    "9007199254740993",
    "1.00000005960464477539062500",
    "1.00000005960464477539062501",
    "1.00000005960464477539062499",
    "0.016666666666666666",
    "18446744073709551615",
    "18446744073709551616",
    "0e99999999999999",
    "0.000000000000000000000000000000000000000000000000000000000000001e63",
    "1e99999999999999999999",
    "1e-99999999999999999999",
    "1e0000000000001",
    "",
    "-",
    "+",
    ".",
    "-.",
    "+.",
    "e5",
    ".e5",
    "1e",
    "1e+",
    "1e-",
    "1.2.3",
    "..1",
    "1..",
    "--1",
    "+-1",
    "1-",
    "1+",
    "1,5",
    "1 ",
    " 1",
    "1a",
    "a1",
    "0x10",
    "0x1p3",
    "nan",
    "NaN",
    "inf",
    "-inf",
    "infinity",
    "nan(1)",
    "1e5.5",
    "1_000",
    "12345678a",
    "a2345678",
    "1234567/",
    "1234567:",
    "\xb1",
    "\xae",
    "/5",
    "5/",
    "0.0/",
    "\xff\xff\xff\xff"};

TEST(texts_that_are_numbers_and_texts_that_are_not)
{
    for (int i = 0; i < DATA_N(odd_texts); i++)
        check_text_of(odd_texts[i]);
}

/* n digits, without a 0 behind them */
static char *add_digits(char *s, int n, uint64_t *state)
{
    for (int i = 0; i < n; i++)
        *s++ = (char)('0' + data_random(state) % 10);
    return s;
}

static void random_text(char *s, uint64_t *state)
{
    uint64_t r = data_random(state);
    int before = (int)(r % 12), behind = (int)(r >> 8 & 15);

    if ((r >> 16 & 7) == 0) {
        before = (int)(r >> 20 & 31);
        behind = (int)(r >> 25 & 31);
    }
    if ((r >> 30 & 7) == 0)
        *s++ = (r >> 33 & 3) ? '-' : '+';
    s = add_digits(s, before, state);
    if (r >> 35 & 1) {
        *s++ = '.';
        s = add_digits(s, behind, state);
    }
    if ((r >> 36 & 3) == 0)
        s += sprintf(s, "e%d", (int)(r >> 40 & 63) - 32);
    *s = 0;
}

TEST(random_numbers_have_the_bits_of_the_c_library)
{
    const int n = 2000000 / test_fraction();
    uint64_t state = 1;
    padded p;
    char *s = place(&p);

    for (int i = 0; i < n; i++) {
        random_text(s, &state);
        check(s);
    }
}

/* What a CTR data set is full of: up to eight characters. */
TEST(short_numbers_have_the_bits_of_the_c_library)
{
    const int n = 3000000 / test_fraction();
    uint64_t state = 2;
    padded p;
    char *s = place(&p);

    for (int i = 0; i < n; i++) {
        uint64_t r = data_random(&state);
        int before = (int)(r & 7), behind = (int)(r >> 3 & 7);
        char *to = s;

        if ((r >> 6 & 3) == 0)
            *to++ = '-';
        to = add_digits(to, before, &state);
        if (r >> 8 & 1) {
            *to++ = '.';
            to = add_digits(to, behind, &state);
        }
        *to = 0;
        check(s);
    }
}

TEST(texts_of_odd_characters_are_accepted_as_the_grammar_says)
{
    static const char odd[] = "0123456789.eE+-/: ,\xb0";
    const int n = 2000000 / test_fraction();
    uint64_t state = 3;
    padded p;
    char *s = place(&p);

    for (int i = 0; i < n; i++) {
        uint64_t r = data_random(&state);
        int size = (int)(r % 20);

        for (int j = 0; j < size; j++)
            s[j] = odd[data_random(&state) % (j % 3 ? 12 : sizeof odd - 1)];
        s[size] = 0;
        if (*s == ' ') /* the C library skips it */
            continue;
        check(s);
    }
}

TEST(printed_floats_and_doubles_come_back)
{
    const int n = 200000 / test_fraction();
    uint64_t state = 4;
    padded p;
    char *s = place(&p);

    for (int i = 0; i < n; i++) {
        uint64_t r = data_random(&state), low = r & 0xFFFFFFFF;
        uint32_t bits = (uint32_t)low;
        double d;
        float f;

        memcpy(&f, &bits, sizeof f);
        memcpy(&d, &r, sizeof d);
        if (isfinite(f)) {
            snprintf(s, 100, "%.9g", (double)f);
            check(s);
            snprintf(s, 100, "%.*e", (int)(r >> 60), (double)f);
            check(s);
        }
        if (isfinite(d)) {
            snprintf(s, 100, "%.17g", d);
            check(s);
        }
        snprintf(s, 100, "%.*g", 6 + (int)(r >> 61),
                 (double)(r >> 11) * 0x1p-53);
        check(s);
    }
}

/* Exactly between two floats, or two doubles, and a little to each side. */
static void check_middle(char *s, long double middle)
{
    size_t n;

    snprintf(s, 1500, "%.1200Lg", middle);
    check(s);
    n = strlen(s);
    if (memchr(s, 'e', n) || !memchr(s, '.', n))
        return;
    strcpy(s + n, "0000000000000000000000000000001");
    check(s);
    s[n] = 0;
    s[n - 1]--; /* the last digit of a middle is a 5 */
    strcpy(s + n, "99999");
    check(s);
}

TEST(numbers_between_two_others_round_as_in_the_c_library)
{
    const int n = 30000 / test_fraction();
    uint64_t state = 5;
    padded p;
    char *s = place(&p);

    for (int i = 0; i < n; i++) {
        uint64_t r = data_random(&state);
        int e = (int)(r >> 58) - 40;

        /* 25 bits and 54 bits: one more than a mantissa has */
        check_middle(
            s, ldexpl((long double)((r & 0xFFFFFF) | 0x800000) + 0.5L, e));
        check_middle(
            s, ldexpl((long double)((r & 0xFFFFFFFFFFFFF) | 1ull << 52) + 0.5L,
                      e - 20));
        /* and where floats are denormal */
        check_middle(s, ldexpl((long double)(r & 0xFFFF) + 0.5L, -149));
    }
}

TEST(many_digits_count)
{
    padded p;
    char *s = place(&p);

    /* a middle that only a digit far behind decides */
    strcpy(s, "1.00000005960464477539062500");
    memset(s + strlen(s), '0', 1200);
    strcpy(s + 1228, "1");
    check(s);
    memset(s, '0', 900);
    strcpy(s + 900, "1.5");
    check(s);
    memset(s, '9', 330);
    strcpy(s + 330, "e-300");
    check(s);
    strcpy(s, "0.");
    memset(s + 2, '0', 700);
    strcpy(s + 702, "123e700");
    check(s);
}

static void check_u64(char *s)
{
    char *end = s + strlen(s);
    bool number = *s && strspn(s, "0123456789") == strlen(s), ok;
    uint64_t got = 0, want = 0;

    for (const char *c = s; number && *c; c++)
        number = !__builtin_mul_overflow(want, 10u, &want) &&
                 !__builtin_add_overflow(want, (uint64_t)(*c - '0'), &want);
    *end = '7';
    ok = fl_parse_u64(s, end, &got);
    *end = 0;
    if (ok != number || (ok && got != want))
        test_fail(__FILE__, __LINE__, "\"%s\" is %" PRIu64 " (%d)", s, got, ok);
}

TEST(ids_are_what_their_digits_say)
{
    static const char *const texts[] = {
        "0",
        "1",
        "12345678",
        "123456789",
        "1234567890123456",
        "12345678901234567",
        "18446744073709551615",
        "18446744073709551616",
        "18446744073709551625",
        "28446744073709551615",
        "99999999999999999999",
        "100000000000000000000",
        "00000000000000000000000000000000000000001",
        "000000000000000018446744073709551615",
        "",
        "-1",
        "-0",
        "+1",
        "3.7",
        "1e5",
        "0x10",
        "a",
        "1234567a",
        "a2345678",
        "12345678a123",
        "1 2"};
    const int n = 3000000 / test_fraction();
    uint64_t state = 6;
    padded p;
    char *s = place(&p);

    for (int i = 0; i < DATA_N(texts); i++) {
        strcpy(s, texts[i]);
        check_u64(s);
    }
    for (int i = 0; i < n; i++) {
        uint64_t r = data_random(&state);

        *add_digits(s, (int)(r % 23), &state) = 0;
        if ((r >> 32 & 15) == 0)
            s[r >> 40 & 7] = (char)(r >> 48);
        check_u64(s);
    }
}

TEST(the_hosts_locale_does_not_matter)
{
    static const char *const locales[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR",
                                          "de_DE"};
    float f;
    double d;
    padded p;
    char *s = place(&p);

    for (int i = 0; i < DATA_N(locales); i++)
        if (setlocale(LC_ALL, locales[i]))
            break;
    strcpy(s, "1.00000005960464477539062500");
    CHECK(fl_parse_float(s, s + 28, &f));
    CHECK(f == 1.0f);
    CHECK(fl_parse_double(s, s + 28, &d));
    CHECK(d == 1.00000005960464477539062500);
    strcpy(s, "1,5");
    CHECK(!fl_parse_float(s, s + 3, &f));
}
