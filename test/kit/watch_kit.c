/* watch_kit.c - see watch_kit.h. */
#define SUITE watch_kit
#include "watch_kit.h"

#include <stdio.h>
#include <string.h>

#include "model_kit.h"
#include "test.h"

#include "base/folder.h"

char watch_said[20000];
fleet_evaluation watch_seen[WATCH_MOST];
int watch_n_seen, watch_resumes;

static void hear(void *user, fleet_log_level level, const char *line)
{
    size_t n = strlen(watch_said);

    (void)user, (void)level;
    snprintf(watch_said + n, sizeof watch_said - n, "%s\n", line);
}

/* Each new one is told at once; the same one may be told again. */
static void look(void *user, const fleet_progress *p)
{
    const fleet_evaluation *v = p->validation;

    (void)user;
    if (v &&
        (watch_n_seen == 0 ||
         memcmp(&watch_seen[watch_n_seen - 1], v, sizeof *v) != 0) &&
        watch_n_seen < WATCH_MOST)
        watch_seen[watch_n_seen++] = *v;
}

static const char *config(void)
{
    static const char text[] =
        "{\"model\": {\"type\": \"wide_deep\", \"embedding_dim\": 4, "
        "\"hidden\": [8]}, \"epochs\": 3, \"seed\": 3, \"dataset\": "
        "{\"format\": \"multislot\", \"train\": [\"%s\"], \"test\": [\"%s\"], "
        "\"batch_size\": 32, \"shuffle\": 50}, \"slots\": "
        "[{\"name\": \"y\", \"type\": \"float\", \"role\": \"label\"}, "
        "{\"name\": \"dense\", \"type\": \"float\", \"dim\": 3}, {\"name\": "
        "\"u\", \"type\": \"uint64\"}, {\"name\": \"v\", \"type\": "
        "\"uint64\"}, {\"name\": \"w\", \"type\": \"uint64\", \"dim\": -1}]}";
    const char *train = scene_file("train.txt", 100, 1);
    char all[3000];

    snprintf(all, sizeof all, text, train, scene_file("test.txt", 60, 2));
    return test_file("config.json", all);
}

fleet_status watch_act(fleet_config_action action, const char *const *set,
                       char **line)
{
    fleet_config_options o = {.action = action,
                              .log = hear,
                              .log_level = FLEET_LOG_INFO,
                              .on_progress = look,
                              .set = set};

    while (set && set[o.n_set])
        o.n_set++;
    o.resume = watch_resumes;
    *watch_said = 0;
    watch_n_seen = 0;
    return fleet_train_from_config(config(), &o, line);
}

char *watch_train(const char *const *set)
{
    char *line = NULL;

    CHECK_OK(watch_act(FLEET_CONFIG_TRAIN, set, &line));
    CHECK(line != NULL);
    return line;
}

const char *watch_path(const char *key, const char *file)
{
    char text[400];

    snprintf(text, sizeof text, "%s=%s", key, test_path(file));
    return test_keep(text);
}

void watch_refuse(const char *a, const char *b, const char *words)
{
    char *line;

    CHECK_FAILS(
        watch_act(FLEET_CONFIG_PRINT, (const char *[]){a, b, NULL}, &line),
        FLEET_ECONFIG, words);
}

void watch_forget(int checkpoint)
{
    char name[40];

    for (int i = checkpoint + 1; i <= 40; i++) {
        snprintf(name, sizeof name, "all/checkpoint-%06d", i);
        fl_folder_remove(test_path(name));
    }
}
