/* Reads amounts of journals: "EUR -12.50", "-$12.50", "12.50 EUR", "12.50", "1,000.00 EUR". */
#include <ctype.h>
#include <string.h>

#include "cli/book/book.h"

static truce_status amount_refuse(bson_error_t *error, const char *why)
{
    return truce__fail(TRUCE_INVALID, error, "%s", why);
}

static bool amount_is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static const char *amount_skip_blanks(const char *text)
{
    while (amount_is_blank(*text))
        text++;
    return text;
}

/* Returns "1,000.00" without its commas, or NULL if it is not a number. */
static char *amount_number_of(const char *sign, const char *text, size_t size)
{
    const char *point = memchr(text, '.', size);
    size_t whole = point ? (size_t)(point - text) : size, length = 0;
    bool commas = memchr(text, ',', size) != NULL;
    char *made = bson_malloc(size + 2);

    if (*sign == '-')
        made[length++] = '-';
    for (size_t i = 0; i < size; i++) {
        bool group = (whole - i) % 4 == 0 && i > 0 && i < whole;

        if (text[i] == ',' && (!point || !group))
            /* "1,000" is ambiguous: it may mean one thousand, or one with three decimals. */
            length = SIZE_MAX;
        else if (commas && i < whole && group && text[i] != ',')
            length = SIZE_MAX;
        else if (text[i] == '.' && text + i != point)
            length = SIZE_MAX;
        if (length == SIZE_MAX) {
            bson_free(made);
            return NULL;
        }
        if (text[i] != ',')
            made[length++] = text[i];
    }
    made[length] = '\0';
    return made;
}

static const char *commodity_end(const char *text)
{
    if (*text == '"') {
        const char *end = strchr(text + 1, '"');

        return end ? end + 1 : text;
    }
    while (*text && !amount_is_blank(*text) && !isdigit((unsigned char)*text) &&
           !strchr("+-.,;@={}\"", *text))
        text++;
    return text;
}

/* Returns the end of a currency's name. Names of beancount may contain digits. */
static const char *currency_end(enum book_form form, const char *text)
{
    const char *end = commodity_end(text);

    if (form == BOOK_BEANCOUNT && end > text) {
        while (isalnum((unsigned char)*end) || (*end && strchr("'._-", *end)))
            end++;
    }
    return end;
}

static char *commodity_of(const char *text, const char *end)
{
    return *text == '"' ? bson_strndup(text + 1, (size_t)(end - text) - 2)
                        : bson_strndup(text, (size_t)(end - text));
}

/* Explains what follows an amount, if truce does not support it. */
static truce_status refuse_rest(const char *rest, bson_error_t *error)
{
    switch (*rest) {
    case '@':
        return amount_refuse(
            error, "prices (@) are not supported: a transaction must balance in each currency");
    case '=':
        return amount_refuse(error,
                             "balance assertions (=) are not supported: they would not be checked");
    case '{':
        return amount_refuse(
            error, "costs ({...}) are not supported: a transaction must balance in each currency");
    default:
        return truce__fail(
            TRUCE_INVALID, error,
            "unexpected \"%.40s\" after the amount: expected the end of the line, or a comment (;)",
            rest);
    }
}

truce_status book_read_amount(enum book_form form, const char *text, char **amount, char **currency,
                              const char **rest, bson_error_t *error)
{
    const char *begin = text, *sign = "", *end;

    if (strchr("+-", *text) && *text)
        sign = text++;
    text = amount_skip_blanks(text);
    end = currency_end(form, text);
    if (end > text) {
        *currency = commodity_of(text, end);
        text = amount_skip_blanks(end);
        if (*text && strchr("+-", *text) && !*sign)
            sign = text++;
    }
    end = text + strspn(text, "0123456789.,");
    if (end > text)
        *amount = amount_number_of(sign, text, (size_t)(end - text));
    if (!*amount)
        return truce__fail(
            TRUCE_INVALID, error,
            "invalid amount \"%.40s\": expected 1000.00 or 1,000.00, and its currency", begin);
    *rest = amount_skip_blanks(end);
    end = currency_end(form, *rest);
    if (!*currency && end > *rest) {
        *currency = commodity_of(*rest, end);
        *rest = amount_skip_blanks(end);
    }
    return **rest && **rest != ';' ? refuse_rest(*rest, error) : TRUCE_OK;
}
