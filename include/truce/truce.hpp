#ifndef TRUCE_TRUCE_HPP
#define TRUCE_TRUCE_HPP

/*
 * truce for C++17: owning handles, documents and ids without casts, and exceptions.
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
 * The layer is thin: get() of every class returns the C handle, and a function without a method
 * here is called in C. If TRUCE_NOT_FOUND is a regular result of a C function, the method returns
 * an empty optional. Any other failure is thrown as truce::error. Threads are as in C.
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

/* A failure: the status and the error of a C call. */
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

/* Throws truce::error unless `status` is TRUCE_OK. */
inline void check(truce_status status, const bson_error_t &why)
{
    if (status)
        throw error(status, why);
}

/* Owns a bson_t. */
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

/* Parses Extended JSON, in mongosh's relaxed syntax with TRUCE_JSON_TYPED. Throws TRUCE_INVALID
 * with the column. */
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

/* Returns a document as Extended JSON. */
inline std::string text(const bson_t &document, truce_json_form form = TRUCE_JSON_RELAXED)
{
    std::unique_ptr<char, decltype(&bson_free)> line(truce_json_write(&document, false, form),
                                                     &bson_free);

    return line.get();
}

/* Iterates once over the result of a find or an aggregation. */
class cursor
{
  public:
    explicit cursor(truce_cursor *taken) : cursor_(taken, &truce_cursor_close)
    {
    }

    /* Returns the next document, borrowed until the next call; nullptr at the end. */
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

/* A commit in progress, lent to the function of store::transact. */
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
    /* Runs a guarded query (truce_commit_find). The cursor must be destroyed before the function
     * returns. */
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

/* A refusal that a function of store::transact throws: the commit is abandoned, and transact
 * rethrows the exception. */
class refused : public std::runtime_error
{
  public:
    using std::runtime_error::runtime_error;
};

/* Owns a store handle. */
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
    /* Returns the number of documents that matched. */
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
    /* Returns the number of documents that were removed. */
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

    /* Runs the function as one commit, and again on a conflict. An exception abandons the commit
     * and leaves transact, except for a truce::error of TRUCE_CONFLICT, which runs the function
     * again. */
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

    /* Catches every exception, because none may pass through C. */
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
