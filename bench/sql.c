#include "bench/sql.h"

void sql_close(struct sql *sql)
{
    sql->ops->close(sql);
}

void sql_execute(struct sql *sql, const char *text)
{
    sql->ops->execute(sql, text);
}

void sql_start(struct sql *sql, struct sql_statement statement)
{
    sql->ops->start(sql, &statement, 1);
}

void sql_start_all(struct sql *sql, const struct sql_statement *statements, int count)
{
    sql->ops->start(sql, statements, count);
}

bool sql_next(struct sql *sql)
{
    return sql->ops->next(sql);
}

int64_t sql_number(struct sql *sql, int column)
{
    return sql->ops->number(sql, column);
}

const char *sql_text(struct sql *sql, int column)
{
    return sql->ops->text(sql, column);
}

int64_t sql_finish(struct sql *sql)
{
    return sql->ops->finish(sql);
}

int64_t sql_run(struct sql *sql, struct sql_statement statement)
{
    sql_start(sql, statement);
    return sql_finish(sql);
}

int64_t sql_get(struct sql *sql, struct sql_statement statement)
{
    int64_t number = 0;

    sql_start(sql, statement);
    if (sql_next(sql))
        number = sql_number(sql, 0);
    sql_finish(sql);
    return number;
}

void sql_spoil(struct sql *sql, const char *exists)
{
    static const struct {
        const char *table, *remove;
    } all[] = {{"documents", "DELETE FROM documents WHERE id = (SELECT min(id) FROM documents)"},
               {"elements", "DELETE FROM elements WHERE owner = 7"},
               {"students", "DELETE FROM students WHERE id = 7"},
               {"badges", "DELETE FROM badges WHERE player = 7"},
               {"players", "DELETE FROM players WHERE id = 7"},
               {"jobs", "DELETE FROM jobs WHERE id = (SELECT min(id) FROM jobs)"},
               {"accounts", "DELETE FROM accounts WHERE id = 7"}};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct sql_value name = TEXT(all[i].table);

        if (sql_get(sql, (struct sql_statement){exists, &name, 1}) > 0)
            sql_execute(sql, all[i].remove);
    }
}
