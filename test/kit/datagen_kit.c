/* datagen_kit.c - see datagen_kit.h. */
#define SUITE datagen_kit
#include "datagen_kit.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"

int datagen_run(const char *arguments, char said[DATAGEN_MOST])
{
    char command[3 * DATAGEN_MOST];

    snprintf(command, sizeof command, "'%s' %s 2>&1",
             test_beside("fleet-datagen"), arguments);
    return test_shell(command, said, DATAGEN_MOST);
}

const char *datagen_file(const char *options, const char *name,
                         char said[DATAGEN_MOST])
{
    const char *path = test_keep(test_path(name));
    char arguments[2 * DATAGEN_MOST];

    snprintf(arguments, sizeof arguments, "%s '%s'", options, path);
    if (datagen_run(arguments, said) != 0)
        test_fail(__FILE__, __LINE__, "%s: %s", arguments, said);
    return path;
}

char *datagen_make(const char *options, const char *name,
                   char said[DATAGEN_MOST])
{
    size_t size;
    char *text;

    CHECK_OK(fl_file_read(datagen_file(options, name, said), &text, &size));
    return text;
}

double datagen_number(const char *line, const char *key)
{
    const char *value = test_json_value(line, key);

    return strtod(strchr(value, ':') + 1, NULL);
}

void datagen_train(const char *config, const char *words,
                   char said[DATAGEN_MOST])
{
    char command[3 * DATAGEN_MOST];

    snprintf(command, sizeof command, "'%s' '%s' %s 2>'%s'",
             test_beside("fleet-train"), config, words, test_path("train.log"));
    if (test_shell(command, said, DATAGEN_MOST) == 0)
        return;
    snprintf(command, sizeof command, "cat '%s'", test_path("train.log"));
    test_shell(command, said, DATAGEN_MOST);
    test_fail(__FILE__, __LINE__, "fleet-train %s %s: %s", config, words, said);
}
