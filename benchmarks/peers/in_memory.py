"""The lower bound without a database: bm25s for words, NumPy for vectors."""

import bm25s
import numpy as np
import Stemmer
from numpy.typing import NDArray

from benchmarks.peers.child import Task
from benchmarks.peers.exchange import Corpus
from benchmarks.peers.timing import K, Search, Whole, measure


def _words(corpus: Corpus) -> Whole:
    """Return BM25 with the analysis nearest to PostgreSQL's: English stop words and Snowball stems."""
    stemmer = Stemmer.Stemmer("english")
    index = bm25s.BM25(k1=1.5, b=0.75, method="lucene")
    words = bm25s.tokenize(corpus.texts, stopwords="english", stemmer=stemmer, show_progress=False)
    index.index(words, show_progress=False)

    def answer(question: str) -> list[str]:
        tokens = bm25s.tokenize([question], stopwords="english", stemmer=stemmer, show_progress=False)
        places, _ = index.retrieve(tokens, k=K, show_progress=False)
        return [corpus.ids[place] for place in places[0]]

    return answer


def _vectors(corpus: Corpus) -> Search:
    def search(_question: str, vector: NDArray[np.float32]) -> list[str]:
        scores = corpus.vectors @ vector
        places = np.argpartition(scores, len(scores) - K)[-K:]
        return [corpus.ids[place] for place in places[np.argsort(-scores[places])]]

    return search


def main() -> None:
    """Measure."""
    task = Task.from_arguments()
    words = _words(task.corpus)
    lexical = measure(
        task.corpus,
        way="bm25s, words alone",
        plan="all scores",
        whole=words,
        search=lambda question, _vector: words(question),
        rounds=task.rounds,
    )
    dense = task.row("NumPy, vectors alone", "all scores", _vectors(task.corpus))
    task.finish([lexical, dense], packages=["bm25s", "numpy"])


if __name__ == "__main__":
    main()
