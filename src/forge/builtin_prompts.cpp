// The text of `calibrate --text builtin`, and of a warm-up: prompts as people write them, from one
// word to a page, in prose, code, lists, numbers and several languages. Changing one changes the
// text's SHA-256, which every file of scales carries.
#include <array>

#include "forge/calibrate.h"

namespace sextant {
namespace {

constexpr std::array<std::string_view, 44> kPrompts = {
    "Hi",
    "Why is the sky blue?",
    "Thanks, that helped. Good night!",
    "What is 17 * 23? Answer with the number only.",
    "Name three rivers in South America.",
    "Translate to French: The library opens at nine o'clock on weekdays.",
    "Write a haiku about a cold harbor in the morning.",
    "Who wrote Don Quixote, and in which century?",
    "Is a tomato a fruit or a vegetable? Explain in two sentences.",
    "Give me a synonym for 'stubborn' and use it in a sentence.",
    R"(Summarize in one sentence:

The committee met on Tuesday to decide whether the old bridge should be repaired or replaced. An
engineer reported that two of the five piers had moved by almost four centimeters since the last
survey, and that the deck would carry light traffic for ten years more at best. The treasurer
answered that a new bridge costs six times as much as a repair, and that the town has other roads
to think of. After three hours the vote was postponed until autumn, when a second survey is due.)",
    R"(Explain to a ten-year-old how a refrigerator keeps food cold. Use an everyday comparison, do
not use the word "thermodynamics", and end with a question that the child could try to answer.)",
    R"(Write a Python function that merges two sorted lists.

def merge(left, right):
    result = []
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i] <= right[j]:
            result.append(left[i])
            i += 1
        else:
            result.append(right[j])
            j += 1
)",
    R"(What is wrong with this C program?

#include <stdio.h>
#include <stdlib.h>

int main(void) {
    int *numbers = malloc(10 * sizeof(int));
    for (int i = 0; i <= 10; i++) {
        numbers[i] = i * i;
    }
    printf("%d\n", numbers[9]);
    return 0;
}
)",
    R"(Fix the query so that customers without orders appear too:

SELECT c.name, COUNT(o.id) AS n_orders, SUM(o.total) AS spent
FROM customers c JOIN orders o ON o.customer_id = c.id
WHERE o.created_at >= '2024-01-01'
GROUP BY c.name HAVING COUNT(o.id) >= 0 ORDER BY spent DESC LIMIT 20;
)",
    R"({"order": 48213, "customer": {"name": "Ines Ferreira", "city": "Porto", "vip": false},
 "items": [{"sku": "A-113", "qty": 2, "price": 14.5}, {"sku": "C-027", "qty": 1, "price": 129.0},
           {"sku": "K-900", "qty": 12, "price": 0.35}], "currency": "EUR", "paid": null}

What does this order cost in all? Show the steps.)",
    R"(Shopping list:
- 2 liters of milk
- rye bread
- 500 g of lentils
- onions (3)
- olive oil
- dark chocolate, 85 %
- batteries, AA

Sort it by the section of the supermarket.)",
    R"(| city | 2019 | 2020 | 2021 | 2022 |
| --- | ---: | ---: | ---: | ---: |
| Lyon | 522,228 | 522,250 | 520,774 | 521,098 |
| Turin | 857,910 | 851,199 | 848,748 | 841,600 |
| Leeds | 793,139 | 798,786 | 809,036 | 822,483 |

Which city grew in every year, and by how many people over the whole time?)",
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803",
    "1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 987, 1597, 2584, 4181, 6765, ...",
    "0x7f 0x45 0x4c 0x46 0x02 0x01 0x01 0x00 -1.5e-7 +6.022e23 1/3 2^31-1 0b10110 NaN inf -0.0",
    R"(Solve for x and check the result: 3(x - 4)^2 - 27 = 0. Then give the vertex of the parabola
y = 3(x - 4)^2 - 27, the points where it meets both axes, and the area that it encloses with the
x axis.)",
    R"(A train leaves at 8:15 and travels at 84 km/h. A second one leaves the same station at 8:45
on a parallel track at 112 km/h. At what time does the second train reach the first, and how far
from the station are they then? Write down the equation before you solve it.)",
    "Warum ist der Himmel am Abend rot? Bitte in drei kurzen Sätzen, ohne Fachwörter.",
    R"(Schreibe eine höfliche E-Mail an die Hausverwaltung: Die Heizung im dritten Stock fällt seit
Montag immer wieder aus, nachts sind es nur 15 °C, und am Telefon meldet sich niemand.)",
    "¿Cuáles son las diferencias principales entre el español de México y el de Argentina?",
    R"(Résume ce paragraphe en une phrase : « Les marées résultent de l'attraction de la Lune et du
Soleil. Lorsque les deux astres sont alignés avec la Terre, leurs effets s'ajoutent et l'on parle
de vives-eaux ; lorsqu'ils forment un angle droit, ce sont les mortes-eaux. »)",
    "Scrivi una ricetta semplice per quattro persone con zucchine, uova e pecorino.",
    "Qual é a capital da Austrália, e por que não é Sydney?",
    "Объясни простыми словами, чем отличается погода от климата, и приведи два примера.",
    "请用三句话解释为什么月亮有圆缺变化,并给出一个简单的比喻。",
    "日本の四季の中で、旅行に一番いい季節はいつですか。理由も教えてください。",
    "한국어로 자기소개를 짧게 써 주세요. 이름은 민수, 직업은 간호사입니다.",
    "اشرح باختصار كيف تعمل البوصلة، ولماذا تشير إلى الشمال.",
    "समुद्र का पानी खारा क्यों होता है? दो वाक्यों में बताइए।",
    "Γιατί τα φύλλα αλλάζουν χρώμα το φθινόπωρο; 🍂🍁 Απάντησε με ένα emoji στο τέλος "
    "🙂",
    R"(<!DOCTYPE html>
<html lang="en"><head><title>Menu</title><style>li { margin: 0 0 .5em 1.25rem }</style></head>
<body><ul id="menu"><li><a href="/home?from=menu&amp;v=2">Home</a></li><li>About</li></ul>
<script>document.querySelectorAll('#menu li').forEach((li, i) => li.tabIndex = i);</script>
</body></html>

Make this page accessible to people who use a screen reader.)",
    R"($ git status
On branch feature/login
Your branch and 'origin/feature/login' have diverged,
and have 3 and 1 different commits each, respectively.
  (use "git pull" to merge the remote branch into yours)

What happened here, and what are my options? I do not want to lose my commits.)",
    R"(Traceback (most recent call last):
  File "report.py", line 88, in <module>
    main(sys.argv[1:])
  File "report.py", line 61, in main
    rows = [parse(line) for line in handle]
  File "report.py", line 34, in parse
    return Row(int(fields[0]), fields[1], float(fields[2]))
IndexError: list index out of range

The input is a CSV file of 40,000 lines that somebody edited by hand. How do I find the line?)",
    R"(Write a story of about two hundred words. It begins: "The lighthouse keeper had not spoken to
anyone for nineteen days when the radio began to play by itself." There is a dog in it, nobody
dies, and the last sentence is a question.)",
    R"(You are given minutes of a meeting. List decisions, open questions and who does what by when.

Present: Aylin, Bo, Chidi, Dana. Excused: Emil.
Aylin showed the new page; loading takes 2.4 s on a phone, the goal is 1.5 s. Bo thinks that the
pictures are the reason, Chidi suspects the fonts. They will both measure until Thursday. Dana asked
whether the old address should still work after the move; nobody knew. It was agreed that the old
page stays up until the end of March in any case, and that Emil is asked about the address. The
budget for translations (4,500 EUR) is approved, Dana signs the contract this week. Aylin would like
to test with five people from outside; Bo offers his neighbors, which caused some laughter but was
accepted. Chidi reminded everyone that the certificate expires on 14 April and that the renewal
failed last year because the mail went to somebody who had left. Next meeting: Friday, 10:00, and
for once with an agenda.)",
    R"(Compare the two proofs that there are infinitely many primes: Euclid's, which multiplies all
primes of a finite list and adds one, and Euler's, which shows that the sum of 1/p diverges. Which
says more about how many primes there are below a large number n? Assume that the reader knows
what a convergent series is, and write $\sum_{p \le n} 1/p \approx \ln \ln n$ where it helps.)",
    R"(Continue in the same style:

No. 7. The Baker. He weighs the flour as if it were gold, and the gold as if it were flour. When the
bell rings at four he is already awake; when it rings at five the street smells of him.
No. 8. The Postwoman. She knows who writes to whom and has never told; ask her about the weather and
she will tell you about the weather.
No. 9. The Clockmaker.)",
    R"(Long question, sorry. I have a small vegetable garden, about 30 square meters, on a slope
that faces southwest. The soil is heavy clay; in spring it stays wet until the middle of
April, and in July it gets so hard that a spade bounces off it. For four years I have grown
tomatoes, beans, potatoes and pumpkins, always in the same places because the beds are
between old stone walls and cannot be moved. The first year was wonderful. Since then the
potatoes have had scab, the tomatoes catch blight in August, earlier each year, and the
pumpkins make leaves but hardly any fruit. I add two wheelbarrows of compost every autumn,
from kitchen scraps and leaves, and I water in the evening, from above, with a hose, because
there is no other tap. My neighbor says that I should dig in sand. My sister says never to
dig at all and to cover everything with straw. The garden center sold me lime, but I have
not used it yet since the package says that one should measure first.

My questions: 1. What should I measure, and with what? 2. Is the order of crops to blame, the water,
or the soil? 3. What would you change this autumn, if you could change only two things, and what
would you leave for next spring? Please give reasons, and say where you are not sure.)",
};

}  // namespace

std::span<const std::string_view> builtin_prompts() { return kPrompts; }

}  // namespace sextant
