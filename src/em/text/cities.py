"""Cities whose names mean nothing else: no country, state, person, program or thing has them.

The list is closed and short on purpose. Who says "I moved to Porto" names a city; "I moved to
Phoenix" could be a program, and "I live in New York" a state. Such names are not here.
"""

CITIES = frozenset(
    """
    Accra|Adelaide|Amsterdam|Ankara|Antwerp|Athens|Auckland|Baltimore|Bangkok|Barcelona|Basel
    Beijing|Belfast|Belgrade|Berlin|Bern|Bilbao|Birmingham|Bogotá|Bologna|Bordeaux|Boston
    Bratislava|Bremen|Brisbane|Bristol|Brussels|Bucharest|Budapest|Buenos Aires|Calgary|Cape Town
    Casablanca|Chennai|Chicago|Coimbra|Copenhagen|Dakar|Dallas|Denver|Detroit|Dresden|Dublin
    Dubrovnik|Düsseldorf|Edinburgh|Eindhoven|Faro|Frankfurt|Gdańsk|Geneva|Glasgow|Gothenburg|Graz
    Hamburg|Hanoi|Helsinki|Houston|Hyderabad|Innsbruck|Istanbul|Johannesburg|Karachi|Kathmandu
    Krakow|Kraków|Kyiv|Kyoto|Lagos|Lausanne|Leeds|Leipzig|Lima|Lisbon|Liverpool|Ljubljana|London
    Los Angeles|Lyon|Madrid|Manchester|Manila|Marrakesh|Marseille|Melbourne|Mexico City|Miami|Milan
    Milwaukee|Minneapolis|Minsk|Montevideo|Montreal|Montréal|Moscow|Mumbai|Munich|Nairobi|Naples
    New Delhi|New Orleans|Osaka|Oslo|Ottawa|Palermo|Paris|Perth|Philadelphia|Pittsburgh|Porto|Prague
    Pune|Reykjavik|Riga|Rio de Janeiro|Rome|Rotterdam|Sacramento|Salzburg|San Diego|San Francisco
    Sarajevo|Seattle|Seoul|Seville|Shanghai|Sheffield|Shenzhen|Skopje|Sofia|Stockholm|Strasbourg
    Stuttgart|Sydney|Taipei|Tallinn|Tbilisi|Tel Aviv|Thessaloniki|Tirana|Tokyo|Toronto|Toulouse
    Turin|Utrecht|Valencia|Vancouver|Vienna|Vilnius|Warsaw|Yerevan|Zagreb|Zurich|Zürich
    """.strip()
    .replace("\n    ", "|")
    .split("|")
)
