/* text_escape_test.c - what comes from elsewhere reaches errors and logs with
 * newlines and escapes of terminals written out. */
#define SUITE text_escape
#include "test.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"

static void check_escaped(const char *text, const char *wanted)
{
    char out[200];

    snprintf(out, sizeof out, "%s", text);
    fl_text_escape(out, sizeof out);
    CHECK_TEXT(out, wanted);
    fl_text_escape(out, sizeof out);
    CHECK_TEXT(out, wanted);
}

TEST(controls_are_written_out_and_characters_stay)
{
    check_escaped("", "");
    check_escaped("plain\ttext \\n", "plain\ttext \\n");
    check_escaped("a\nb\rc", "a\\nb\\rc");
    check_escaped("\x1b[31mred\x7f", "\\x1b[31mred\\x7f");
    check_escaped("Gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x9a\xa2",
                  "Gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x9a\xa2");
    check_escaped("\xc2\x9b"
                  "31m",
                  "\\xc2\\x9b31m"); /* C1 */
    check_escaped("\x9b\xff\xc3", "\\x9b\\xff\\xc3");
}

TEST(what_does_not_fit_is_cut_between_characters)
{
    char text[10] = "abcde\n\n\n";

    fl_text_escape(text, sizeof text);
    CHECK_TEXT(text, "abcde\\n\\n");
    strcpy(text, "abcdef\x1b");
    fl_text_escape(text, sizeof text);
    CHECK_TEXT(text, "abcdef");
}

TEST(errors_show_no_escapes)
{
    fl_error error = {FLEET_EPEER, "says\x1b[2J"};

    CHECK_FAILS(fl_fail(FLEET_EINVAL, "job \"%s\"", "a\n\x1b[31m"),
                FLEET_EINVAL, "job \"a\\n\\x1b[31m\"");
    CHECK_FAILS(fl_error_raise(&error), FLEET_EPEER, "says\\x1b[2J");
}

static void keep(void *user, fleet_log_level level, const char *line)
{
    (void)level;
    snprintf(user, 100, "%s", line);
}

TEST(lines_of_the_log_are_one_line_each)
{
    char line[100] = "";
    fl_log log;

    fl_log_init(&log, keep, line, FLEET_LOG_INFO);
    FL_INFO(&log, "worker %s", "a\nserver 0: all is well");
    CHECK_TEXT(line, "worker a\\nserver 0: all is well");
    fl_log_done(&log);
}
