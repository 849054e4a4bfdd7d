#ifndef TRUCE_TRUCE_HPP
#define TRUCE_TRUCE_HPP

/*
 * truce for C++17: handles that close themselves, documents and ids without casts, failures as exceptions.
 *
 *     truce::store store("school.truce");
 *     store.insert("people", truce::json(R"({"_id": 1, "name": "Ada"})"));
 *     for (const bson_t &person : store.find("people", truce::json(R"({"name": "Ada"})")))
 *         std::puts(truce::text(person).c_str());
 *
 *     store.transact([&](truce::commit &commit) {
 *         commit.update("accounts", truce_id_utf8("a"), enough, take);
 *         commit.update("accounts", truce_id_utf8("b"), {}, give);
 *     });
 *
 * It is thin: every class gives its C handle by get(), and what has no method here is called in C. What a C call
 * says by NOT_FOUND, where that is an answer, is an empty optional; any other status is thrown as
 * truce::error. Threads are as in C.
 */
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "truce/truce.h"

namespace truce
{

class error : public std::runtime_error
{
  public:
    error(truce_status status, const bson_error_t &why)
        : std::runtime_error(why.message), status_(status), why_(why)
    {
    }
    truce_status status() const
    {
        return status_;
    }
    const bson_error_t &why() const
    {
        return why_;
    }

  private:
    truce_status status_;
    bson_error_t why_;
};

inline void check(truce_status status, const bson_error_t &why)
{
    if (status)
        throw error(status, why);
}

/* A bson_t of its own. */
class document
{
  public:
    document() : bson_(bson_new())
    {
    }
    explicit document(const bson_t &other) : bson_(bson_copy(&other))
    {
    }
    document(const document &other) : bson_(bson_copy(other.get()))
    {
    }
    document(document &&other) noexcept : bson_(std::exchange(other.bson_, nullptr))
    {
    }
    document &operator=(document other) noexcept
    {
        std::swap(bson_, other.bson_);
        return *this;
    }
    ~document()
    {
        if (bson_)
            bson_destroy(bson_);
    }
    bson_t *get()
    {
        return bson_;
    }
    const bson_t *get() const
    {
        return bson_;
    }
    operator const bson_t &() const
    {
        return *bson_;
    }

  private:
    bson_t *bson_;
};

/* Extended JSON; loose as in mongosh with TRUCE_JSON_TYPED. Throws INVALID with the column. */
inline document json(std::string_view text, truce_json_input input = TRUCE_JSON_STRICT)
{
    bson_error_t why = {};
    bson_t read;
    bool is_array = false;
    truce_status status = truce_json_read(text.data(), text.size(), input, &read, &is_array, &why);
    document made(read);

    bson_destroy(&read);
    check(status, why);
    return made;
}

inline std::string text(const bson_t &document, truce_json_form form = TRUCE_JSON_RELAXED)
{
    std::unique_ptr<char, decltype(&bson_free)> line(truce_json_write(&document, false, form),
                                                     &bson_free);

    return line.get();
}

/* What a find or an aggregation gives, once, from its first document to its last. */
class cursor
{
  public:
    explicit cursor(truce_cursor *taken) : cursor_(taken, &truce_cursor_close)
    {
    }

    /* Borrowed until the next one; nullptr at the end. */
    const bson_t *next()
    {
        const bson_t *found = nullptr;
        bson_error_t why = {};

        check(truce_cursor_next(cursor_.get(), &found, &why), why);
        return found;
    }

    class iterator
    {
      public:
        explicit iterator(cursor *of) : of_(of), at_(of ? of->next() : nullptr)
        {
        }
        const bson_t &operator*() const
        {
            return *at_;
        }
        iterator &operator++()
        {
            at_ = of_->next();
            return *this;
        }
        bool operator!=(const iterator &other) const
        {
            return at_ != other.at_;
        }

      private:
        cursor *of_;
        const bson_t *at_;
    };
    iterator begin()
    {
        return iterator(this);
    }
    iterator end()
    {
        return iterator(nullptr);
    }
    truce_cursor *get()
    {
        return cursor_.get();
    }

  private:
    std::unique_ptr<truce_cursor, decltype(&truce_cursor_close)> cursor_;
};

/* A commit on its way, lent to the function of store::transact. */
class commit
{
  public:
    explicit commit(truce_commit *lent) : commit_(lent)
    {
    }

    std::optional<document> read(const char *collection, const bson_value_t &id)
    {
        bson_error_t why = {};
        bson_t found;
        truce_status status = truce_commit_read(commit_, collection, &id, &found, &why);
        document made(found);

        bson_destroy(&found);
        if (status == TRUCE_NOT_FOUND)
            return std::nullopt;
        check(status, why);
        return made;
    }
    /* a guarded query (truce_commit_find); the cursor is gone before the function ends */
    cursor find(const char *collection, const bson_t &filter,
                const truce_find_options &options = {})
    {
        truce_cursor *found = nullptr;
        bson_error_t why = {};

        check(truce_commit_find(commit_, collection, &filter, &options, &found, &why), why);
        return cursor(found);
    }
    void insert(const char *collection, const bson_t &document)
    {
        bson_error_t why = {};
        check(truce_commit_insert(commit_, collection, &document, &why), why);
    }
    void update(const char *collection, const bson_value_t &id, const bson_t &guard,
                const bson_t &update)
    {
        bson_error_t why = {};
        check(truce_commit_update(commit_, collection, &id, &guard, &update, &why), why);
    }
    void remove(const char *collection, const bson_value_t &id, const bson_t &guard)
    {
        bson_error_t why = {};
        check(truce_commit_remove(commit_, collection, &id, &guard, &why), why);
    }
    truce_commit *get()
    {
        return commit_;
    }

  private:
    truce_commit *commit_;
};

/* What a function of store::transact throws to say no: the commit ends, and transact throws it on. */
class refused : public std::runtime_error
{
  public:
    using std::runtime_error::runtime_error;
};

class store
{
  public:
    explicit store(const std::string &uri, const truce_store_options &options = {})
        : store_(nullptr, &truce_store_close)
    {
        truce_store *opened = nullptr;
        bson_error_t why = {};

        check(truce_store_open(uri.c_str(), &options, &opened, &why), why);
        store_.reset(opened);
    }

    void insert(const char *collection, const bson_t &document,
                const truce_write_options &options = {})
    {
        bson_error_t why = {};
        check(truce_insert(store_.get(), collection, &document, &options, &why), why);
    }
    /* How many documents were found, and are different now or gone. */
    int64_t update(const char *collection, const bson_t &filter, const bson_t &update,
                   const truce_write_options &options = {})
    {
        truce_write_result result = {};
        bson_error_t why = {};

        truce_status status =
            truce_update(store_.get(), collection, &filter, &update, &options, &result, &why);
        int64_t matched = result.matched;

        truce_write_result_release(&result);
        check(status, why);
        return matched;
    }
    int64_t remove(const char *collection, const bson_t &filter,
                   const truce_write_options &options = {})
    {
        truce_write_result result = {};
        bson_error_t why = {};
        truce_status status =
            truce_remove(store_.get(), collection, &filter, &options, &result, &why);
        int64_t removed = result.removed;

        truce_write_result_release(&result);
        check(status, why);
        return removed;
    }
    cursor find(const char *collection, const bson_t &filter,
                const truce_find_options &options = {})
    {
        truce_cursor *found = nullptr;
        bson_error_t why = {};

        check(truce_find(store_.get(), collection, &filter, &options, &found, &why), why);
        return cursor(found);
    }
    std::optional<document> find_one(const char *collection, const bson_t &filter,
                                     const truce_find_options &options = {})
    {
        bson_error_t why = {};
        bson_t found;
        truce_status status =
            truce_find_one(store_.get(), collection, &filter, &options, &found, &why);
        document made(found);

        bson_destroy(&found);
        if (status == TRUCE_NOT_FOUND)
            return std::nullopt;
        check(status, why);
        return made;
    }
    int64_t count(const char *collection, const bson_t &filter,
                  const truce_count_options &options = {})
    {
        bson_error_t why = {};
        int64_t number = 0;

        check(truce_count(store_.get(), collection, &filter, &options, &number, &why), why);
        return number;
    }

    /* Runs the function as one commit, again on a conflict. Whatever it throws abandons the commit and
     * comes out of here, but for a truce::error of CONFLICT, which runs it again. */
    void transact(const std::function<void(commit &)> &function,
                  const truce_commit_options &options = {})
    {
        call run = {&function, nullptr};
        bson_error_t why = {};
        truce_status status = truce_transact(store_.get(), &run_once, &run, &options, &why);

        if (status && run.thrown)
            std::rethrow_exception(run.thrown);
        check(status, why);
    }
    truce_store *get()
    {
        return store_.get();
    }

  private:
    struct call {
        const std::function<void(commit &)> *function;
        std::exception_ptr thrown;
    };

    /* No exception passes through C. */
    static truce_status run_once(truce_commit *lent, void *arg, bson_error_t *why)
    {
        call *run = static_cast<call *>(arg);

        run->thrown = nullptr;
        try {
            commit handed(lent);
            (*run->function)(handed);
            return TRUCE_OK;
        } catch (const error &caught) {
            *why = caught.why();
            if (caught.status() != TRUCE_CONFLICT)
                run->thrown = std::current_exception();
            return caught.status();
        } catch (const std::exception &caught) {
            std::snprintf(why->message, sizeof why->message, "%s", caught.what());
            run->thrown = std::current_exception();
        } catch (...) {
            run->thrown = std::current_exception();
        }
        return TRUCE_REFUSED;
    }

    std::unique_ptr<truce_store, decltype(&truce_store_close)> store_;
};

} // namespace truce

#endif
