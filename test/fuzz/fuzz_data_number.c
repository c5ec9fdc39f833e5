/* fuzz_data_number.c - numbers from text against the C library. */
#include "fuzz_data.h"

#include <math.h>

static bool is_digits(const char *s, size_t n)
{
    return n > 0 && strspn(s, "0123456789") >= n;
}

/* What the header of number.h says, by another road. */
static bool is_number(const char *s)
{
    size_t before, behind = 0;

    s += *s == '-' || *s == '+';
    before = strspn(s, "0123456789");
    s += before;
    if (*s == '.') {
        behind = strspn(s + 1, "0123456789");
        s += 1 + behind;
    }
    if (before + behind == 0)
        return false;
    if (*s == 'e' || *s == 'E') {
        s++;
        s += *s == '-' || *s == '+';
        if (!is_digits(s, strlen(s)))
            return false;
        s += strlen(s);
    }
    return *s == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *whole = malloc(size + 1), *text = fuzz_pad(data, size);
    float f = 0, want_f;
    double d = 0, want_d;
    uint64_t u = 0, want_u = 0;
    bool number, id;

    fuzz_must(whole != NULL, "malloc");
    if (size > 0)
        memcpy(whole, data, size);
    whole[size] = 0;
    number = strlen(whole) == size && is_number(whole);
    id = strlen(whole) == size && is_digits(whole, size);
    for (size_t i = 0; id && i < size; i++)
        id = !__builtin_mul_overflow(want_u, 10u, &want_u) &&
             !__builtin_add_overflow(want_u, (uint64_t)(whole[i] - '0'),
                                     &want_u);
    want_f = strtof(whole, NULL);
    want_d = strtod(whole, NULL);

    fuzz_must(fl_parse_float(text, text + size, &f) ==
                  (number && isfinite(want_f)),
              "float accepted");
    fuzz_must(fl_parse_double(text, text + size, &d) ==
                  (number && isfinite(want_d)),
              "double accepted");
    fuzz_must(fl_parse_u64(text, text + size, &u) == id, "id accepted");
    fuzz_must(!number || !isfinite(want_f) || !memcmp(&f, &want_f, sizeof f),
              "float");
    fuzz_must(!number || !isfinite(want_d) || !memcmp(&d, &want_d, sizeof d),
              "double");
    fuzz_must(!id || u == want_u, "id");
    fuzz_unpad(text);
    free(whole);
    return 0;
}
